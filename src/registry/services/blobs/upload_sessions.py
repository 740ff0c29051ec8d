"""Find upload sessions: by their rows, or by their ids alone while they have received nothing."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.quotas.limits import QuotaUse
from registry.errors import TooManyUploads, UploadBusy
from registry.metadata.blobs import new_blobs, upload_quota, uploads
from registry.metadata.blobs.upload_quota import Room
from registry.metadata.blobs.uploads import Lease, SessionEnd
from registry.metadata.quotas import check_bytes
from registry.metadata.repositories.repository import Repository
from registry.oci.reference import Name
from registry.services.blobs import upload_ids
from registry.services.context import ServiceContext

_RETRY_SECONDS: Final = 60
"""``Retry-After``, in seconds, if too many uploads are open."""


def get_session(
    tx: Connection, ctx: ServiceContext, name: Name, upload_id: str, now: int
) -> upload_ids.UploadSession:
    """Return a session of a repository that is open at `now` (end-13), or raise `UploadUnknown`."""
    found = uploads.find_session_in(tx, name.handle, name.repository, upload_id, now)
    if found is None or found.has_expired:
        raise upload_ids.unknown(upload_id)
    if found.upload is not None:
        return upload_ids.UploadSession(found.upload, is_written=True, use=found.use)
    ids = upload_ids.RepositoryIds(found.repository_id, found.account_id)
    session = None if found.has_ended else unwritten_session(ctx, ids, upload_id, now)
    if session is None:
        raise upload_ids.unknown(upload_id)
    return session._replace(use=found.use)


def unwritten_session(
    ctx: ServiceContext, ids: upload_ids.RepositoryIds, upload_id: str, now: int
) -> upload_ids.UploadSession | None:
    """Decode a session from its id; return None if the id is not valid here, or has expired.

    This reads no row: the session may already have one, or have ended.
    """
    given = ctx.upload_ids.read(upload_id, ids)
    if given is None or given.started_at + ctx.limits.upload_idle <= now:
        return None
    return upload_ids.UploadSession(
        upload_ids.new_upload(upload_id, ids, given.algorithm), is_written=False
    )


def check_room(
    tx: Connection,
    ctx: ServiceContext,
    repository_id: str,
    account_id: str,
    now: int,
    adding: int = 0,
) -> QuotaUse | None:
    """Check that a repository and its account may have one more session with a row.

    `adding` is the number of bytes to come, if known. Return the account's stored bytes and their
    limit; None without a limit. Call this in a read transaction before the write, so that a refusal
    does not occupy SQLite's writer; concurrent requests may exceed the maximum of sessions by a
    few.

    Raise `TooManyUploads` if the repository or account has its maximum of sessions, `QuotaExceeded`
    if the account has no room for the bytes.
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


def room_in_target(
    tx: Connection,
    ctx: ServiceContext,
    target: new_blobs.PushTarget,
    now: int,
    upload_id: str | None = None,
    adding: int = 0,
) -> Room | None:
    """Return the account's stored bytes and their limit if a session may begin in a target.

    Return None if the target has changed, if a limit is reached (see `check_room`), or if the
    session `upload_id` has a row or has ended. The caller must check each condition to find the
    reason.
    """
    room = room_of(ctx, now, adding)
    return None if room is None else new_blobs.find_room_in(tx, target, room, upload_id)


def room_of(ctx: ServiceContext, now: int, adding: int = 0) -> upload_quota.LimitParameters | None:
    """Return the maximum numbers of sessions as parameters of a query; None if a maximum is 0."""
    limits = ctx.limits
    most = limits.max_open_uploads_per_repository, limits.max_open_uploads
    if min(most) <= 0:
        return None
    return upload_quota.LimitParameters(now, most[0] - 1, most[1] - 1, adding)


def ids_of(found: Repository | new_blobs.PushTarget) -> upload_ids.RepositoryIds:
    """Return the ids of the repository and account to which session ids are bound."""
    repository_id = found.id if isinstance(found, Repository) else found.repository_id
    return upload_ids.RepositoryIds(repository_id, found.account_id)


def ending_of(ctx: ServiceContext, upload_id: str, lease: Lease | None) -> SessionEnd:
    """Return the parameters that end a session; `lease` is None if the session has no row."""
    return SessionEnd(upload_id, lease, upload_ids.started_at(upload_id) + ctx.limits.upload_idle)


def lost_session(
    tx: Connection, ctx: ServiceContext, name: Name, upload_id: str, now: int
) -> UploadBusy:
    """Return the error for a request that lost its session.

    Raise `UploadUnknown` if the session has ended.
    """
    get_session(tx, ctx, name, upload_id, now)
    return upload_ids.busy()
