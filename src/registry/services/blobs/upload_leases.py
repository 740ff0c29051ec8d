"""The leases that this worker process holds on upload sessions.

A lease lasts 20 s. Its process renews it every 5 s while the request runs, so a lease expires when
its process or machine fails. A session can be taken over earlier if

- the holder has released the lease, in the transaction that recorded what was received;
- the holder was a process of this machine that has died (see `cloudcore.jobs.dead_holders`);
- the holder is this process, and none of its requests writes to the session.

In these three cases nobody else can write to the staged bytes, so the new holder appends in place.
A holder whose lease expired may still run: paused, or disconnected from the database. It can record
nothing, since its token is outdated, but it may write to the staged bytes; so the new holder
continues in a copy of the acknowledged bytes. Until the copy is recorded, `stage_shared` is true in
the row.

If a session has no row yet, its first lease is inserted with the row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database, OutcomeUnknown
from cloudcore.errors import Unavailable
from cloudcore.quotas.limits import QuotaUse
from registry.metadata.blobs import upload_leases as rows
from registry.metadata.blobs import uploads
from registry.metadata.blobs.uploads import FIRST_TOKEN, Lease, ReceivedBytes, Upload
from registry.oci.reference import Name
from registry.services.blobs.upload_ids import UploadSession, busy, unknown
from registry.services.blobs.writing_keys import Seal, UploadKeys

if TYPE_CHECKING:
    from registry.services.context import ServiceContext

Look = Callable[[Connection, Upload], UploadKeys]
"""Finds the keys of a session in the transaction that takes its lease."""
LEASE: Final = 20 * MICROSECONDS
RENEW_SECONDS: Final = 5


@dataclass(slots=True)
class UploadHold:
    """A lease on an upload session, held for one request."""

    name: Name
    upload: Upload
    """The session's row when the lease was taken."""
    lease: Lease
    stage_id: str
    """Id under which this holder stages bytes: the session's, or that of a copy."""
    keys: UploadKeys | None = None
    seal: Seal | None = None
    """The data key of the bytes under `stage_id`; None if they are plain, or not open yet."""
    before: bytes = b""
    """The bytes in the session's row, to be staged before the next bytes."""
    use: QuotaUse | None = None
    """Stored bytes of the account and their limit; None without a limit, or if the account already
    has the blob."""
    is_over: bool = False
    """True once a transaction was tried that releases the lease or ends the session."""

    @property
    def has_copy(self) -> bool:
        """Return True if this holder writes to a copy of the received bytes."""
        return self.stage_id != self.upload.stage_id


class UploadLeaseLost(Exception):
    """Another holder has taken the lease, or the session has ended."""


@dataclass(slots=True, eq=False)
class _Claim:
    """A request of this process that holds the lease of a session, or is waiting for it."""

    name: Name
    upload: Upload
    look: Look | None
    is_taken: bool = False

    def held(self, tx: Connection, upload: Upload) -> UploadHold:
        """Return the hold for a lease that `tx` has taken; `upload` is the session's row now."""
        keys = self.look and self.look(tx, upload)
        return UploadHold(self.name, upload, uploads.lease_of(upload), upload.stage_id, keys)


class Leases:
    """The leases of the sessions that requests of this process write to."""

    def __init__(
        self,
        holder: str,
        is_dead: Callable[[str], bool] = lambda _: False,
        *,
        has_own_database: bool = False,
    ) -> None:
        """Hold leases under the id `holder`, which no other process has ever used.

        `is_dead` returns True if another holder's process has died. With `has_own_database`, the
        database is on this machine and goes down with it, so taking a lease need not wait for a
        flush.
        """
        self.holder = holder
        self._is_dead = is_dead
        self._has_own_database = has_own_database
        self._claims: dict[str, _Claim] = {}
        self._unreleased: set[Lease] = set()
        self._perhaps_taken: set[str] = set()
        """Sessions whose lease was perhaps taken for a request that has ended."""

    @asynccontextmanager
    async def hold(
        self, ctx: ServiceContext, name: Name, session: UploadSession, look: Look | None = None
    ) -> AsyncIterator[UploadHold]:
        """Hold the lease of an open session in a with block, with the keys that `look` finds.

        If the session has no row, insert one.

        Raises:
            PlatformError: raised by `look`; the lease is not taken.
            UploadUnknown: there is no such session here, or it has ended.
            UploadBusy: another request holds the lease.

        """
        upload_id = session.upload.id
        if self.is_writing(upload_id):
            raise busy()
        claim = self._claims[upload_id] = _Claim(name, session.upload, look)
        try:
            hold = await self._take_lease(ctx, claim, is_written=session.is_written)
            claim.is_taken = True
            try:
                yield hold
            except (Exception, asyncio.CancelledError):
                # The transaction that releases the lease may have failed: `renew` tries again.
                self._unreleased.add(hold.lease)
                if not hold.is_over:
                    await self._release(ctx.database)
                raise
        finally:
            del self._claims[upload_id]

    def is_writing(self, upload_id: str) -> bool:
        """Return True if a request of this process holds the session's lease, or waits for it."""
        return upload_id in self._claims

    def is_abandoned(self, upload: Upload) -> bool:
        """Return True if no other holder can write to the session.

        Call this only for a session that no other request of this process writes to.
        """
        holder = upload.lease_holder
        return holder is None or holder == self.holder or self._is_dead(holder)

    async def renew(self, database: Database, clock: Clock) -> None:
        """Extend the leases of running requests to 20 s from now; release those of ended requests.

        Raise `Unavailable` if the database cannot be written now.
        """
        held = [upload_id for upload_id, claim in self._claims.items() if claim.is_taken]
        if held:
            until = clock() + LEASE
            await database.write_relaxed(rows.renew_leases, held, self.holder, until)
        await self._release(database)
        await self._release_perhaps_taken(database)

    async def _release(self, database: Database) -> None:
        for lease in tuple(self._unreleased):
            with suppress(Unavailable):  # `renew` tries again, until the lease expires
                await database.write_relaxed(rows.release_lease, lease)
                self._unreleased.discard(lease)

    async def _release_perhaps_taken(self, database: Database) -> None:
        for upload_id in tuple(self._perhaps_taken):
            self._perhaps_taken.discard(upload_id)
            is_settled = False
            try:
                with suppress(Unavailable):
                    is_settled = await database.write_relaxed(self._release_unclaimed, upload_id)
            finally:
                if not is_settled:
                    self._perhaps_taken.add(upload_id)

    def _release_unclaimed(self, tx: Connection, upload_id: str) -> bool:
        """Release this process's lease on a session; return False if a request here writes to it.

        The row is locked first, so this waits for a transaction that takes the lease, and a later
        one waits for this.
        """
        found = rows.lock_holder(tx, upload_id)
        if self.is_writing(upload_id):
            return False
        if found is not None and found[0] == self.holder:
            rows.release_lease(tx, Lease(upload_id, self.holder, found[1]))
        return True

    async def _take_lease(
        self, ctx: ServiceContext, claim: _Claim, *, is_written: bool
    ) -> UploadHold:
        """Take the lease of an open session; raise `UploadUnknown` or `UploadBusy` like `hold`."""
        write = ctx.database.write_relaxed if self._has_own_database else ctx.database.write
        try:
            if is_written:
                hold = await write(self._take_free, claim, ctx.clock())
            else:
                hold = await write(self._begin, claim, ctx.clock(), ctx.limits.upload_idle)
            if hold is None:
                await self._refuse_held(ctx, claim)
                hold = await write(self._take, claim, ctx.clock())
        except (OutcomeUnknown, asyncio.CancelledError):
            self._perhaps_taken.add(claim.upload.id)  # `renew` releases it
            raise
        return hold

    async def _refuse_held(self, ctx: ServiceContext, claim: _Claim) -> None:
        """Raise `UploadBusy` if another has the lease, `UploadUnknown` if the session has ended.

        This only reads, so that a refusal needs no write transaction.
        """
        upload = await ctx.database.read(
            uploads.find_upload, *claim.name, claim.upload.id, ctx.clock()
        )
        if upload is None:
            raise unknown(claim.upload.id)
        if not (self.is_abandoned(upload) or has_run_out(upload, ctx.clock())):
            raise busy()

    def take_expired(self, tx: Connection, upload_id: str, now: int) -> Upload | None:
        """Take an expired session's lease; None if it is gone, not expired, or held by another."""
        return self._take_over(tx, rows.lock_expired_upload(tx, upload_id, now), now)

    def take_abandoned(self, tx: Connection, upload_id: str, now: int) -> Upload | None:
        """Take the lease of a session in order to end it.

        Return None if the session is gone, or another holder still has the lease.
        """
        return self._take_over(tx, rows.lock_any_upload(tx, upload_id), now)

    def _take_over(self, tx: Connection, before: Upload | None, now: int) -> Upload | None:
        if before is None or self.is_writing(before.id):
            return None
        if not (self.is_abandoned(before) or has_run_out(before, now)):
            return None
        return rows.take(tx, before.id, self.holder, now + LEASE, shared=True)

    def _take_free(self, tx: Connection, claim: _Claim, now: int) -> UploadHold | None:
        """Take the lease of an open session; None if held or gone. Raise as `_check_claim` does."""
        place = *claim.name, claim.upload.id, now
        upload = rows.take_free(tx, *place, self.holder, now + LEASE)
        if upload is None:
            return None
        self._check_claim(claim)
        return claim.held(tx, upload)

    def _begin(self, tx: Connection, claim: _Claim, now: int, idle: int) -> UploadHold | None:
        """Insert a session's row with a lease; return None if it has a row, or has ended."""
        upload = claim.upload._replace(
            lease_holder=self.holder, lease_token=FIRST_TOKEN, leased_until=now + LEASE
        )
        nothing = ReceivedBytes(0, {}, upload.stage_id, None)
        if not uploads.begin_upload(tx, upload, nothing, now, now + idle):
            return None
        self._check_claim(claim)
        return claim.held(tx, upload)

    def _take(self, tx: Connection, claim: _Claim, now: int) -> UploadHold:
        """Take the lease of a session; wait for transactions that have locked its row.

        Raise `UploadUnknown` if the session has ended, `UploadBusy` if another request holds it.
        """
        upload_id = claim.upload.id
        before = rows.lock_upload(tx, *claim.name, upload_id, now)
        if before is None:
            raise unknown(upload_id)
        self._check_claim(claim)
        is_abandoned = self.is_abandoned(before)
        if not (is_abandoned or has_run_out(before, now)):
            raise busy()
        shared = before.stage_shared or not is_abandoned
        return claim.held(tx, rows.take(tx, upload_id, self.holder, now + LEASE, shared=shared))

    def _check_claim(self, claim: _Claim) -> None:
        """Raise `UploadBusy` if the request was cancelled while it waited for the row's lock.

        Another request may hold the session by then.
        """
        if self._claims.get(claim.upload.id) is not claim:
            raise busy()


def has_run_out(upload: Upload, now: int) -> bool:
    """Return True if the session's lease has expired, or it has none."""
    return upload.leased_until is None or upload.leased_until <= now
