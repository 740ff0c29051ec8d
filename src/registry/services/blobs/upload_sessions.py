"""Find an upload session: by its row, or by its id alone as long as it has received nothing.

Before there is a row, the id says what it would say. It is a UUIDv7: 48 bits of time
(milliseconds), 34 random bits, and 40 bits of a MAC over these, the repository and the hash
algorithm (HMAC-SHA-256, cut off). So ``POST`` writes nothing, and every process of an install that
has the key recognizes the session.

The MAC tells ids that were given out from others. It protects no right: every request is authorized
for its repository, and who may push there gets an id for the asking. So 40 bits are plenty, and an
id stays a UUID, which clients expect in ``Docker-Upload-UUID``.
"""

from __future__ import annotations

import hmac
import os
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.quotas.limits import Use
from registry.errors import TooManyUploads, UploadBusy, UploadUnknown
from registry.metadata.blobs import new_blobs, uploads
from registry.metadata.blobs.stored_bytes import check_bytes
from registry.metadata.blobs.uploads import Ending, Lease, Room, Upload
from registry.metadata.repositories.live import Repository
from registry.oci.digest import ALGORITHMS
from registry.oci.reference import Name

if TYPE_CHECKING:
    from registry.services.context import ServiceContext

_RETRY_SECONDS: Final = 60
"""``Retry-After``, in seconds, if too many uploads are open."""
CONTEXT: Final = "ids of upload sessions"
"""For `cloudcore.keyring.Keyring.derive`: the key is the install's, so it outlives restarts."""
_MAC_BITS: Final = 40
_RANDOM_BITS: Final = 34
_LOW_BITS: Final = 62 - _MAC_BITS  # of the random ones, those after the variant
_OPEN_KEY: Final = bytes(32)


class Session(NamedTuple):
    """An open upload session."""

    upload: Upload
    is_written: bool
    """It has a row. Otherwise it has received nothing yet."""
    use: Use | None = None
    """What its account has and may have of bytes, as far as it was read; None: any number."""


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
) -> Use | None:
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
    full, use = uploads.find_room(tx, repository_id, account_id, now, *most, adding)
    if full == "bytes":
        check_bytes(use, adding)
    elif full is not None:
        open_ = most[0]
        if full == "account":
            open_ = uploads.COUNTED.read(tx, account_id, most[1], now=now).limit
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


def room_of(ctx: ServiceContext, now: int, adding: int = 0) -> uploads.FullParameters | None:
    """Return how many sessions may be open besides a new one; None if none may."""
    limits = ctx.limits
    most = limits.max_open_uploads_per_repository, limits.max_open_uploads
    if min(most) <= 0:
        return None
    return uploads.FullParameters(now, most[0] - 1, most[1] - 1, adding)


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


def unknown(upload_id: str) -> UploadUnknown:
    """Return the error for a session that does not exist or has ended."""
    return UploadUnknown("there is no such upload here, or it has ended", upload=upload_id)


def busy() -> UploadBusy:
    """Return the error for a session that another request writes to."""
    return UploadBusy("another request is writing to this upload; try again")


class Place(NamedTuple):
    """The repository of a session."""

    repository_id: str
    account_id: str


class Given(NamedTuple):
    """What an id says."""

    algorithm: str | None
    """The hash algorithm that the client announced, or None."""
    started_at: int
    """In microseconds since the epoch."""


class UploadIds:
    """Makes and recognizes the ids of one install."""

    def __init__(self, key: bytes = _OPEN_KEY) -> None:
        """Sign with `key`; the default is no secret, and is for ``entrepot dev`` without keys."""
        self._key = key

    def new(self, place: Place, algorithm: str | None, now: int) -> str:
        """Return the id of a session that starts `now`, in microseconds since the epoch."""
        random = int.from_bytes(os.urandom(5), "big") >> (40 - _RANDOM_BITS)
        time = now // 1000 & ((1 << 48) - 1)
        value = time << 80 | 0x7 << 76 | (random >> _LOW_BITS) << 64
        value |= 0b10 << 62 | (random & ((1 << _LOW_BITS) - 1)) << _MAC_BITS
        return str(uuid.UUID(int=value | self._mac(value, place, algorithm)))

    def read(self, upload_id: str, place: Place) -> Given | None:
        """Return what an id says, or None if `new` did not make it for this repository."""
        number = _number(upload_id)
        mac = number & ((1 << _MAC_BITS) - 1)
        for algorithm in (None, *ALGORITHMS):
            if self._mac(number - mac, place, algorithm) == mac:
                return Given(algorithm, started_at(upload_id))
        return None

    def _mac(self, value: int, place: Place, algorithm: str | None) -> int:
        parts = value.to_bytes(16, "big"), *(text.encode() for text in (*place, algorithm or ""))
        made = hmac.digest(self._key, b"\0".join(parts), "sha256")
        return int.from_bytes(made[: _MAC_BITS // 8], "big")


def lowest_id(moment: int) -> str:
    """Return an id below those of all sessions that were started since a moment."""
    return str(uuid.UUID(int=moment // 1000 << 80))


def started_at(upload_id: str) -> int:
    """Return when a session was started, in microseconds since the epoch (UUIDv7)."""
    return (_number(upload_id) >> 80) * 1000


def _number(upload_id: str) -> int:
    return int(upload_id.replace("-", ""), 16)
