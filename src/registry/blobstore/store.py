"""The blob store: `BlobReader`, `BlobWriter` and `BlobSweeper`, over files whose calls block.

A store knows objects by id. It does not know which account, repository or digest an object belongs
to, and no text of a user becomes part of a path.

An upload *stages* bytes (appended at an offset, hashed as they arrive); `Staged.commit` verifies
and flushes them, and makes them an object. There is no other way to make an object.

A coroutine here does not block the event loop: if it must wait for a disk or a network, it does so
in a thread. Plain methods whose docstring says "Blocks" are for bulk threads, which move the bytes.

Absent bytes raise `ObjectUnknown`. Errors of the disk or the network (full, I/O error) raise
`registry.errors.StoreUnavailable`; reading other objects still works. After a failed flush, the
bytes that this writer has written are discarded, since they may be lost even if a second flush
succeeds. Bytes that were acknowledged before this writer began stay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from cloudcore.threads import Runner, Threads, each_of
from registry.blobstore.base import DataKey, Deleted, ListedBytes, OpenObject, Orphan, Stored
from registry.blobstore.blocking import BlockingFiles, BlockingStaged
from registry.blobstore.reading import (
    BlockingGrowing,
    BlockingObject,
    GrowingObject,
    GrowthSignals,
    ThreadedObject,
)
from registry.errors import StoreUnavailable
from registry.oci.digest import Digest


class _Store:
    """The blocking files of a store, and the runner that calls them.

    Readers of growing bytes poll for writes of other processes every `look_seconds`.
    """

    def __init__(self, blocking: BlockingFiles, run: Runner, look_seconds: float) -> None:
        self._blocking = blocking
        self._run = run
        self._look_seconds = look_seconds
        self.signals = GrowthSignals()


class BlobReader(_Store):
    """Reads objects: for the data plane and fsck."""

    async def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> OpenObject:
        """Open an object of `size` bytes, or of any size if None; if sealed, with its data key.

        `size` counts the bytes as they were pushed.

        Raises:
            ObjectUnknown: there is no such object.
            ObjectDamaged: it has another size, or was not sealed with this key for this object.
            StoreUnavailable: the store failed.

        """
        call = self._blocking.open
        stored = await self._run(call, object_id, size, data_key, undo=_close)
        return ThreadedObject(stored, self._run)

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        """Open staged bytes to read them while they grow; if they are committed, open the object.

        Staged bytes may be neither flushed nor verified yet. Writes of other processes become
        visible after a short delay. Sealed bytes become visible by frames of 1 MiB; the last,
        shorter frame when it is flushed or committed.

        Raise `ObjectUnknown`, `ObjectDamaged` or `StoreUnavailable` as `open` does.
        """
        call = self._blocking.open_staged
        opened = await self._run(call, upload_id, data_key, undo=_close)
        if isinstance(opened, BlockingGrowing):
            return GrowingObject(opened, upload_id, self._run, self.signals, self._look_seconds)
        return ThreadedObject(opened, self._run)

    async def open_stored(self, object_id: str, stored_size: int) -> OpenObject:
        """Open the stored bytes of an object as they are, sealed or plain, to verify them.

        Reading them evicts nothing from the kernel's page cache.

        Raises:
            ObjectUnknown, StoreUnavailable: as `open`.
            ObjectDamaged: there are more or fewer than `stored_size` bytes.

        """
        call = self._blocking.open_stored
        stored = await self._run(call, object_id, stored_size, undo=_close)
        return ThreadedObject(stored, self._run)

    async def check(self, object_id: str, stored_size: int) -> None:
        """Check that an object exists with `stored_size` bytes, without opening it.

        Raise `ObjectUnknown`, `ObjectDamaged` or `StoreUnavailable` as `open` does.
        """
        if not self.check_cached(object_id, stored_size):
            await self._run(self._blocking.check, object_id, stored_size)

    def check_cached(self, object_id: str, stored_size: int) -> bool:  # noqa: ARG002
        """Return True if an object with `stored_size` bytes exists, according to cached data.

        Neither waits nor raises. If False, the object may still exist: call `check`.
        """
        return False


class BlobWriter(_Store):
    """Stores bytes: for uploads."""

    async def stage(
        self,
        upload_id: str,
        data_key: DataKey | None,
        algorithm: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> Staged:
        """Begin to stage bytes under a new id, sealed with `data_key` if there is one.

        Hash with sha256, and `algorithm` if not None. `is_fresh` promises that the id is unused.
        Then staging begins with the first write, in the bulk thread, which may raise these errors.

        Raise `StageBusy` if something is already stored under this id, `StoreUnavailable` if the
        store failed.
        """
        if is_fresh:
            begin = partial(self._stage_fresh, upload_id, algorithm, data_key)
            return self._staged(None, upload_id, begin)
        call = self._blocking.stage
        staged = await self._run(call, upload_id, algorithm, data_key, undo=_close)
        return self._staged(staged, upload_id)

    def _stage_fresh(
        self, upload_id: str, algorithm: str | None, data_key: DataKey | None
    ) -> BlockingStaged:
        return self._blocking.stage(upload_id, algorithm, data_key)

    async def resume(self, upload_id: str) -> Staged:
        """Hold staged bytes again; the caller has the lease of their upload session.

        Call `Staged.rewind` next. If the bytes are an object whose row was never written (a crash
        after the commit), `rewind` turns it back into staged bytes.

        Raises:
            ObjectUnknown: nothing is staged under this id.
            StageBusy: another writer holds the staged bytes.
            StoreUnavailable: the store failed.

        """
        staged = await self._run(self._blocking.resume, upload_id, undo=_close)
        return self._staged(staged, upload_id)

    async def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        *,
        data_key: DataKey | None,
        source_key: DataKey | None = None,
    ) -> Staged:
        """Begin to stage bytes under a new id, with the first `size` bytes of `source_id`.

        The copy is sealed with `data_key`; `source_key` decrypts a sealed source.

        The source is staged bytes or an object, and is not changed. During the copy a writer may
        append to the source, or cut off bytes beyond `size`.

        Raises:
            ObjectUnknown: the source has fewer bytes than `size`, or does not decrypt.
            StageBusy: something is already stored under the new id.
            StoreUnavailable: the store failed.

        """
        call = self._blocking.stage_copy
        staged = await self._run(
            call, upload_id, source_id, size, data_key, source_key, undo=_close
        )
        return self._staged(staged, upload_id)

    def _staged(
        self,
        begun: BlockingStaged | None,
        upload_id: str,
        begin: Callable[[], BlockingStaged] | None = None,
    ) -> Staged:
        return Staged(self._run, lambda: self.signals.notify(upload_id), begun, begin)

    async def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        """Return the offset at which an upload with `received` acknowledged bytes can continue.

        The offset is less than `received` if the store can resume only at whole parts or has lost
        bytes, and 0 if the store has no bytes of the upload. An object without a row counts too,
        since `resume` accepts it. Sealed bytes are counted by their stored size, without a key; if
        there are too few, only full frames count.

        Raise `StoreUnavailable` if the store failed.
        """
        return await self._run(
            lambda: self._blocking.resumable(upload_id, received, is_sealed=is_sealed)
        )

    async def discard(self, upload_id: str) -> None:
        """Delete the staged bytes of an upload id; do nothing if there are none.

        Raise `StageBusy` if a writer holds them, `StoreUnavailable` if the store failed.
        """
        await self._run(self._blocking.discard, upload_id)
        self.signals.notify(upload_id)

    async def check_room(self) -> None:
        """Check that there is room for one more byte.

        Raise `StoreUnavailable` if the store is full, or failed.
        """
        await self._run(self._blocking.check_room)

    async def remove_duplicate(self, object_id: str) -> None:
        """Delete a just committed object whose row was not written; do nothing if it is absent.

        For objects whose bytes another object already has, or whose repository was deleted.
        """
        await self._run(self._blocking.delete, object_id)


class BlobSweeper(_Store):
    """Lists, sets aside and deletes objects: only for the collector, the orphan scan and fsck.

    Only the database to which these bytes belong knows which may be deleted. So the store saves the
    id of the last generation of that database (`registry.gc.database_rollback`).
    """

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions by which objects can be listed.

        Neither the names nor the partition of an object ever change.
        """
        return self._blocking.partitions()

    def list_objects(self, partition: str | None = None) -> AsyncIterator[ListedBytes]:
        """Yield every object, or every object of a partition, in no particular order."""
        return each_of(self._run, self._blocking.list_objects(partition))

    def list_ids(self, partition: str) -> AsyncIterator[str]:
        """Yield the ids of a partition's objects; cheaper than `list_objects`."""
        return each_of(self._run, self._blocking.list_ids(partition))

    def list_staged(self) -> AsyncIterator[ListedBytes]:
        """Yield the staged bytes of each upload."""
        return each_of(self._run, self._blocking.list_staged())

    async def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Make an object or staged bytes an orphan; return False if they are absent.

        `moment` is recorded as the time of setting aside. The change is durable. The caller holds
        the bytes (`BlobWriter.resume`). Without `staged_too`, staged bytes count as absent.
        """
        is_done = await self._run(
            lambda: self._blocking.set_aside(object_id, moment, staged_too=staged_too)
        )
        self.signals.notify(object_id)
        return is_done

    def list_orphans(self) -> AsyncIterator[Orphan]:
        """Yield every orphan, in no particular order."""
        return each_of(self._run, self._blocking.list_orphans())

    async def take_back(self, object_id: str) -> bool:
        """Turn an orphan back into an object or staged bytes, durably; return False if absent.

        `BlobReader.open` and `BlobWriter.resume` do so if the id is absent, since a row names it.
        """
        return await self._run(self._blocking.take_back, object_id)

    async def delete_orphan(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan; do nothing if it is absent.

        Raise `DeletionsHeld` if a backup is under way.
        """
        await self._run(self._blocking.delete_orphan, orphan)

    @asynccontextmanager
    async def scan_alone(self) -> AsyncIterator[bool]:
        """Hold the lock of orphan scans in the block; yield False if another process has it."""
        lock = self._blocking.scan_alone()

        def leave() -> None:
            lock.__exit__(None, None, None)

        is_alone = await self._run(lock.__enter__, undo=lambda _: leave())
        try:
            yield is_alone
        finally:
            await self._run(leave)

    async def generation(self) -> str | None:
        """Return the saved generation of the database, or None if none is saved."""
        return await self._run(self._blocking.generation)

    async def save_generation(self, generation: str) -> None:
        """Save the generation of the database durably."""
        await self._run(self._blocking.save_generation, generation)

    async def delete(self, object_ids: Sequence[str]) -> Deleted:
        """Delete objects; skip absent ones, and continue if one cannot be deleted.

        While a backup is under way, delete none, and return `DeletionsHeld` as the refusal.
        """
        return await self._run(_delete, self._blocking, object_ids)


class BlobStore(BlobReader, BlobWriter, BlobSweeper):
    """The whole store; callers declare the part that they need as their type."""

    def close(self) -> None:
        """Release the store and its threads; objects that it opened stay readable. Blocks."""
        self._blocking.close()
        if isinstance(self._run, Threads):
            self._run.close()


class Staged:
    """The staged bytes of one upload, held by exactly one writer.

    `notify` wakes readers after each change. If `begun` is None, the first write, flush or commit
    calls `begin`.
    """

    def __init__(
        self,
        run: Runner,
        notify: Callable[[], None],
        begun: BlockingStaged | None,
        begin: Callable[[], BlockingStaged] | None = None,
    ) -> None:
        self._run = run
        self._notify = notify
        self._begun = begun
        self._begin = begin

    def _held(self) -> BlockingStaged:
        if self._begun is None:
            if self._begin is None:
                raise ValueError("the staged bytes are not held any more")
            self._begun = self._begin()
        return self._begun

    @property
    def offset(self) -> int:
        """Return the number of staged bytes; after `BlobWriter.resume`, call `rewind` first."""
        return 0 if self._begun is None else self._begun.offset

    async def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        *,
        data_key: DataKey | None,
    ) -> None:
        """Go to the acknowledged `offset` of resumed bytes; cut off all bytes after it.

        Also allowed, to 0, right after `BlobWriter.stage`.

        `digests` is the result of `flush` at this offset; `algorithm` and `data_key` are as passed
        to `BlobWriter.stage`. At 0, resumed bytes may begin anew with another data key or none.

        Raises:
            ObjectUnknown: there are fewer bytes than `offset`, or sealed bytes do not decrypt.
            StoreUnavailable: the store failed.
            ValueError: this writer began with a data key and now has none, or the reverse.

        """
        begun, is_sealed = self._begun, data_key is not None
        if begun is not None and begun.rewind_is_immediate(offset, is_sealed=is_sealed):
            begun.rewind(offset, digests, algorithm, data_key)
        else:
            await self._run(lambda: self._held().rewind(offset, digests, algorithm, data_key))
        self._notify()

    def write(self, view: memoryview, /) -> None:
        """Append bytes and hash them. Blocks.

        Raise `StoreUnavailable` if the store is full or failed; the bytes before `offset` are
        intact.
        """
        self._held().write(view)
        self._notify()

    def flush(self) -> Mapping[str, str]:
        """Make the staged bytes durable (file, then folder); return their digests. Blocks.

        The digests are in hex, by each algorithm that has hashed every byte, so that a later
        `rewind` on any worker need not read the bytes again.

        Write more only after the offset was acknowledged. After a failure, this writer can only be
        closed. The next writer continues at the offset to which this writer was rewound; if that is
        0, with new bytes.
        """
        return self._held().flush()

    def commit(self, expected: Digest | None) -> Stored:
        """Verify the bytes against `expected`, flush them and make them an object. Blocks.

        None for `expected` accepts any bytes. sha256 is always computed; if `expected` has another
        algorithm that was not hashed as the bytes arrived, they are read again. The bytes stay held
        until `aclose`, so that no scan takes the object for an orphan before its row is written.

        Raise `DigestMismatch` if the bytes hash to another digest; they are still staged then.
        Raise `StoreUnavailable` if flushing failed, as in `flush`; or if the bytes could not be
        read again and were discarded.
        """
        try:
            return self._held().commit(expected)
        finally:
            self._notify()

    async def discard(self) -> None:
        """Delete the staged bytes and free the id; do nothing if the bytes are an object."""
        self._begin = None
        if self._begun is not None:
            await self._run(self._begun.discard)
        self._notify()

    async def aclose(self) -> None:
        """Release the upload but keep its bytes, so that a later request can `resume` them.

        Always call it last, after the row is written; calling it again does nothing.
        """
        self._begin = None
        if self._begun is None:
            return
        if self._begun.closes_slowly:
            await self._run(self._begun.close)
        else:
            self._begun.close()


def _close(opened: BlockingObject | BlockingGrowing | BlockingStaged) -> None:
    opened.close()


def _delete(store: BlockingFiles, object_ids: Sequence[str]) -> Deleted:
    deleted: list[str] = []
    refusal = None
    try:
        with store.deleting():
            for object_id in object_ids:
                try:
                    store.delete(object_id)
                except StoreUnavailable as error:
                    refusal = error
                else:
                    deleted.append(object_id)
    except StoreUnavailable as error:
        refusal = error
    return Deleted(deleted, refusal)
