"""The staged bytes of a fill: written in whole MiB in a thread, recorded from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from cloudcore.db.base import OutcomeUnknown
from cloudcore.threads import Threads
from registry.blobstore.base import Stored
from registry.blobstore.sealed.frame_format import FRAME_BYTES
from registry.blobstore.store import Staged
from registry.metadata.blobs.uploads import ReceivedBytes
from registry.metadata.pull_through import fills
from registry.oci.digest import Digest
from registry.services.blobs.sealing import wrap_for_row
from registry.services.blobs.staged_uploads import drop_received
from registry.services.blobs.upload_leases import UploadHold, UploadLeaseLost
from registry.services.context import ServiceContext
from registry.services.pull_through.feed import Feed

_WRITING: Final = Threads("fills")
"""Separate threads, since fills would block those that open blobs for all requests."""
_WRITE_BYTES: Final = FRAME_BYTES
_NOTE_BYTES: Final = 8 * 1024 * 1024
_NOTE_SECONDS: Final = 1
"""Progress is recorded after `_NOTE_BYTES`, but at most once in this time."""


class FillStage:
    """The staged bytes of a fill, for the worker that holds its lease.

    If 2 MiB are unwritten, `take` waits.
    """

    def __init__(
        self, ctx: ServiceContext, hold: UploadHold, staged: Staged, feed: Feed, size: int | None
    ) -> None:
        self._ctx = ctx
        self._hold = hold
        self.staged = staged
        self._feed = feed
        self._size = size
        self._offset = hold.upload.received_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._noted_at = 0.0

    async def publish(self) -> None:
        """Record the size and the staged file, so that other workers can read it."""
        if self._hold.has_copy:
            await self.note()
        else:
            await self._note(self._hold.upload.digests)

    async def take(self, chunk: bytes) -> None:
        """Pass the next bytes to readers and write them later; wait if too many are unwritten.

        Raise `StoreUnavailable` if the store is full or failed, `UploadLeaseLost` if another worker
        has the fill now.
        """
        self._feed.append(chunk)
        self._pending.append(chunk)
        self._pending_bytes += len(chunk)
        if self._pending_bytes >= _WRITE_BYTES:
            await self._turn()

    async def settle(self) -> None:
        """Write all bytes passed to `take`."""
        await self._turn()
        await self._written()

    async def note(self) -> None:
        """Flush the written bytes and record their number, so that another worker can continue."""
        await self._note(await _WRITING(self.staged.flush))

    async def commit(self, digest: Digest) -> Stored:
        """Make the bytes an object.

        Raise `DigestMismatch` if they have another digest, `StoreUnavailable` if the store failed.
        """
        await self.settle()
        return await _WRITING(self.staged.commit, digest)

    async def aclose(self) -> None:
        """Wait for pending writes, and close the staged file."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await asyncio.wait((writing,))
            if not writing.cancelled():
                writing.exception()  # the caller has this error already, or another
        await self.staged.aclose()

    async def _turn(self) -> None:
        await self._written()
        if self._pending:
            parts, self._pending, self._pending_bytes = self._pending, [], 0
            self._writing = asyncio.create_task(self._write(parts))

    async def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is None:
            return
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._writing = writing
            raise

    async def _write(self, parts: Sequence[bytes]) -> None:
        await _WRITING(_append, self.staged, parts)
        self._offset += sum(map(len, parts))
        self._feed.record_staged_bytes(self._offset - self._offset % FRAME_BYTES)
        since = self._offset - self._hold.upload.received_bytes
        now = asyncio.get_running_loop().time()
        if since >= _NOTE_BYTES and now - self._noted_at >= _NOTE_SECONDS:
            self._noted_at = now
            await self.note()

    async def _note(self, digests: Mapping[str, str]) -> None:
        ctx, hold = self._ctx, self._hold
        wrap = wrap_for_row(hold.seal)
        received = ReceivedBytes(self._offset, digests, hold.stage_id, wrap)
        # A power failure may lose this progress, but not the first row that names a copy.
        write = ctx.database.write if hold.has_copy else ctx.database.write_relaxed
        expires_at = ctx.clock() + ctx.limits.upload_idle
        given = hold.lease, received, self._size, expires_at
        try:
            is_noted = await write(fills.record_staged_bytes, *given)
        except OutcomeUnknown:
            is_noted = await write(fills.record_staged_bytes, *given)
        if not is_noted:
            raise UploadLeaseLost
        if hold.has_copy:
            await drop_received(ctx, hold)
        hold.upload = hold.upload._replace(
            received_bytes=self._offset,
            digests=digests,
            stage_id=hold.stage_id,
            stage_shared=False,
            kms_key_id=None if wrap is None else wrap.kms_key_id,
            wrapped_data_key=None if wrap is None else wrap.wrapped_data_key,
        )


def _append(staged: Staged, parts: Sequence[bytes]) -> None:
    for part in parts:
        staged.write(memoryview(part))
