"""The leases that this worker process holds on upload sessions.

A lease lasts 20 s and is renewed every 5 s for as long as its request runs, so it ends by itself
when the process or its machine is gone. Three things let another holder go on before that:

- its holder has released it, in the change that recorded what was received;
- its holder was a process of this machine that has died: the kernel says so (`worker_locks`);
- its holder is this process, which has no request that writes to the session any more.

After these three nobody else can write to the staged bytes, so they are continued in place. A
holder whose lease has merely run out may live still, stopped or cut off from the database. It can
record nothing more, since its token is an old one; and its successor goes on in a copy of the
acknowledged bytes, so that what it may yet write does no harm. Until a copy is recorded, the row
remembers that one is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unavailable
from registry.errors import UploadBusy, UploadUnknown
from registry.metadata.blobs import uploads
from registry.metadata.blobs.uploads import Lease, Upload
from registry.oci.reference import Name

LEASE: Final = 20 * MICROSECONDS
RENEW_SECONDS: Final = 5


@dataclass(slots=True)
class UploadHold:
    """A lease on a session for one request."""

    name: Name
    upload: Upload
    """The session as it was when the lease was taken."""
    lease: Lease
    stage_id: str
    """Where this holder stages: with the bytes received so far, or in a copy of them."""
    is_over: bool = False
    """True once a change was tried that releases the lease or ends the session."""

    @property
    def has_copy(self) -> bool:
        """Return True if this holder goes on in a copy of what was received so far."""
        return self.stage_id != self.upload.stage_id


class UploadLeaseLost(Exception):
    """Another holder has the lease by now, or the session has ended."""


class _Claim:
    """A request that holds the lease of a session, or is taking it."""

    is_taken = False


class Leases:
    """The sessions to which requests of this process write."""

    def __init__(
        self,
        holder: str,
        is_dead: Callable[[str], bool] = lambda _: False,
        *,
        has_own_database: bool = False,
    ) -> None:
        """Hold leases under the id `holder`, which no process has had before.

        `is_dead` tells of another holder whether it has died. With `has_own_database`, the
        database ends with this machine, so the taking of a lease need not wait for the disk.
        """
        self.holder = holder
        self._is_dead = is_dead
        self._has_own_database = has_own_database
        self._claims: dict[str, _Claim] = {}
        self._unreleased: set[Lease] = set()

    @asynccontextmanager
    async def hold(
        self, database: Database, clock: Clock, name: Name, upload_id: str
    ) -> AsyncIterator[UploadHold]:
        """Hold the lease of an open session in the block.

        Raises:
            UploadUnknown: no such session here, or it has ended.
            UploadBusy: another request holds it.

        """
        if self.is_writing(upload_id):
            await database.read(get_upload, name, upload_id, clock())
            raise busy()
        claim = self._claims[upload_id] = _Claim()
        try:
            write = database.write_relaxed if self._has_own_database else database.write
            hold = await write(self._take_free, name, upload_id, clock())
            if hold is None:
                await self._refuse_held(database, clock, name, upload_id)
                hold = await write(self._take, claim, name, upload_id, clock())
            claim.is_taken = True
            try:
                yield hold
            except (Exception, asyncio.CancelledError):
                # The change that would have released it may have failed, or not: `renew` looks.
                self._unreleased.add(hold.lease)
                if not hold.is_over:
                    await self._release(database)
                raise
        finally:
            del self._claims[upload_id]

    def is_writing(self, upload_id: str) -> bool:
        """Return True if a request of this process holds the session, or is taking it."""
        return upload_id in self._claims

    def is_abandoned(self, upload: Upload) -> bool:
        """Return True if the holder of a lease can no longer write to the session.

        Ask it of a session that no other request of this process writes to.
        """
        holder = upload.lease_holder
        return holder is None or holder == self.holder or self._is_dead(holder)

    async def renew(self, database: Database, clock: Clock) -> None:
        """Let the leases of requests that still run last another 20 s, and release all others.

        Raises:
            Unavailable: the database cannot renew them now.

        """
        held = [upload_id for upload_id, claim in self._claims.items() if claim.is_taken]
        if held:
            until = clock() + LEASE
            await database.write_relaxed(uploads.renew_leases, held, self.holder, until)
        await self._release(database)

    async def _release(self, database: Database) -> None:
        for lease in tuple(self._unreleased):
            with suppress(Unavailable):  # `renew` tries again, and in the end it runs out
                await database.write_relaxed(uploads.release_lease, lease)
                self._unreleased.discard(lease)

    async def _refuse_held(
        self, database: Database, clock: Clock, name: Name, upload_id: str
    ) -> None:
        """Refuse a session that somebody holds, without a change."""
        upload = await database.read(get_upload, name, upload_id, clock())
        if not (self.is_abandoned(upload) or has_run_out(upload, clock())):
            raise busy()

    def take_expired(self, tx: Connection, upload_id: str, now: int) -> Upload | None:
        """Take the lease of a session whose time is over, unless somebody holds it; else None."""
        before = uploads.lock_expired(tx, upload_id, now)
        if before is None or self.is_writing(upload_id):
            return None
        if not (self.is_abandoned(before) or has_run_out(before, now)):
            return None
        return uploads.take(tx, upload_id, self.holder, now + LEASE, shared=True)

    def _take_free(self, tx: Connection, name: Name, upload_id: str, now: int) -> UploadHold | None:
        """Take the lease of a session that nobody holds; return None if there is no such one."""
        place = name.handle, name.repository, upload_id, now
        upload = uploads.take_free(tx, *place, self.holder, now + LEASE)
        return None if upload is None else _hold(name, upload)

    def _take(
        self, tx: Connection, claim: _Claim, name: Name, upload_id: str, now: int
    ) -> UploadHold:
        """Take the lease of a session, waiting for changes to it that are under way."""
        before = uploads.lock_upload(tx, name.handle, name.repository, upload_id, now)
        if before is None:
            raise unknown(upload_id)
        if self._claims.get(upload_id) is not claim:
            raise busy()  # cancelled meanwhile; the holder may be a later request
        is_abandoned = self.is_abandoned(before)
        if not (is_abandoned or has_run_out(before, now)):
            raise busy()
        shared = before.stage_shared or not is_abandoned
        upload = uploads.take(tx, upload_id, self.holder, now + LEASE, shared=shared)
        return _hold(name, upload)


def _hold(name: Name, upload: Upload) -> UploadHold:
    return UploadHold(name, upload, uploads.lease_of(upload), upload.stage_id)


def has_run_out(upload: Upload, now: int) -> bool:
    """Return True if nobody holds a session, or its lease is over."""
    return upload.leased_until is None or upload.leased_until <= now


def get_upload(tx: Connection, name: Name, upload_id: str, now: int) -> Upload:
    """Return a session of a repository that is open at `now` (end-13).

    Raises:
        UploadUnknown: no such session here, or it has ended.

    """
    found = uploads.find_upload(tx, name.handle, name.repository, upload_id, now)
    if found is None:
        raise unknown(upload_id)
    return found


def unknown(upload_id: str) -> UploadUnknown:
    """Return the error of a session that is not there, or has ended."""
    return UploadUnknown("there is no such upload here, or it has ended", upload=upload_id)


def busy() -> UploadBusy:
    """Return the error of a session that another request writes to."""
    return UploadBusy("another request is writing to this upload; try again")
