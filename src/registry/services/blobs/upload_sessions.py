"""Find an upload session: by its row, or by its id alone while it has received nothing."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.quotas.limits import QuotaUse
from registry.errors import TooManyUploads, UploadBusy
from registry.metadata.blobs import new_blobs, upload_quota, uploads
from registry.metadata.blobs.upload_quota import Room
from registry.metadata.blobs.uploads import Ending, Lease, Upload
from registry.metadata.quotas import check_bytes
from registry.metadata.repositories.live import Repository
from registry.oci.reference import Name
from registry.services.blobs.upload_ids import Place, Session, busy, started_at, unknown
from registry.services.context import ServiceContext

_RETRY_SECONDS: Final = 60
"""``Retry-After``, in seconds, if too many uploads are open."""


def get_session(
    tx: Connection, ctx: ServiceContext, name: Name, upload_id: str, now: int
) -> Session:
    """Return a session of a repository that is open at `now` (end-13), or raise UploadUnknown."""
    found = uploads.find_here(tx, name.handle, name.repository, upload_id, now)
    if found is None or found.has_expired:
        raise unknown(upload_id)
    if found.upload is not None:
        return Session(found.upload, is_written=True, use=found.use)
    place = Place(found.repository_id, found.account_id)
    session = None if found.has_ended else unwritten_session(ctx, place, upload_id, now)
    if session is None:
        raise unknown(upload_id)
    return session._replace(use=found.use)


def unwritten_session(
    ctx: ServiceContext, place: Place, upload_id: str, now: int
) -> Session | None:
    """Return a session of this id as it is without a row; None if it was not given out, or expired.

    It may have a row, or have ended.
    """
    given = ctx.upload_ids.read(upload_id, place)
    if given is None or given.started_at + ctx.limits.upload_idle <= now:
        return None
    upload = Upload(
        id=upload_id,
        repository_id=place.repository_id,
        account_id=place.account_id,
        algorithm=given.algorithm,
        received_bytes=0,
        digests={},
        stage_id=upload_id,
        stage_shared=False,
        lease_holder=None,
        lease_token=0,
        leased_until=None,
    )
    return Session(upload, is_written=False)


def check_room(
    tx: Connection,
    ctx: ServiceContext,
    repository_id: str,
    account_id: str,
    now: int,
    adding: int = 0,
) -> QuotaUse | None:
    """Check that a repository and its account may have one more session with a row.

    It is to bring `adding` bytes, as far as it is known. Return what the account has and may have
    of bytes. This is a read before the write transaction, so that a refusal does not occupy
    SQLite's writer; concurrent requests may exceed the maximum of sessions by a few.

    Raises:
        TooManyUploads: one of them has its maximum.
        QuotaExceeded: the account has no room for the bytes.

    """
    limits = ctx.limits
    most = limits.max_open_uploads_per_repository, limits.max_open_uploads
    full, use = upload_quota.find_room(tx, repository_id, account_id, now, *most, adding)
    if full == "bytes":
        check_bytes(use, adding)
    elif full is not None:
        open_ = most[0]
        if full == "account":
            open_ = upload_quota.COUNTED.read(tx, account_id, most[1], now=now).limit
        raise TooManyUploads(
            f"the {full} has {open_} uploads open, and may have no more; finish some, cancel some,"
            " or wait until they expire",
            retry_after=_RETRY_SECONDS,
        )
    return use


def room_there(
    tx: Connection,
    ctx: ServiceContext,
    place: new_blobs.Place,
    now: int,
    upload_id: str | None = None,
    adding: int = 0,
) -> Room | None:
    """Return the room in a place that is unchanged, and where `check_room` raises nothing.

    With `upload_id`, the session has no row and has not ended. None says nothing: look at each.
    """
    room = room_of(ctx, now, adding)
    return None if room is None else new_blobs.takes_more(tx, place, room, upload_id)


def room_of(ctx: ServiceContext, now: int, adding: int = 0) -> upload_quota.FullParameters | None:
    """Return how many sessions may be open besides a new one; None if none may."""
    limits = ctx.limits
    most = limits.max_open_uploads_per_repository, limits.max_open_uploads
    if min(most) <= 0:
        return None
    return upload_quota.FullParameters(now, most[0] - 1, most[1] - 1, adding)


def place_of(found: Repository | new_blobs.Place) -> Place:
    """Return the place that the ids of sessions are bound to."""
    repository_id = found.id if isinstance(found, Repository) else found.repository_id
    return Place(repository_id, found.account_id)


def ending_of(ctx: ServiceContext, upload_id: str, lease: Lease | None) -> Ending:
    """Return the end of a session; `lease` is None if it has no row."""
    return Ending(upload_id, lease, started_at(upload_id) + ctx.limits.upload_idle)


def lost_session(
    tx: Connection, ctx: ServiceContext, name: Name, upload_id: str, now: int
) -> UploadBusy:
    """Return the error for a request that has lost its session; raise UploadUnknown if it ended."""
    get_session(tx, ctx, name, upload_id, now)
    return busy()
