"""A `BlobStore` over one whose calls block (`registry.blobstore.blocking`): threads make them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from registry.blobstore.base import BlobStore, DataKey, OpenObject, Staged, Stored
from registry.blobstore.blocking import BlockingFiles, BlockingStaged
from registry.blobstore.reading import (
    BlockingGrowing,
    BlockingObject,
    GrowingObject,
    GrowthSignals,
    ThreadedObject,
)
from registry.blobstore.sweeper import Deleted, ListedBytes, Orphan
from registry.blobstore.threads import Runner, each_of
from registry.errors import StoreUnavailable
from registry.oci.digest import Digest


class ThreadedStore:
    """A `BlobStore`; `run` makes the calls that block in a thread, or at once.

    A reader of growing bytes polls for writes of other processes every `look_seconds`.
    """

    def __init__(self, blocking: BlockingFiles, run: Runner, look_seconds: float) -> None:
        self._blocking = blocking
        self._run = run
        self._look_seconds = look_seconds
        self.signals = GrowthSignals()

    def close(self) -> None:
        """Release the store; what it opened can still be read. Blocks."""
        self._blocking.close()

    async def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> OpenObject:
        """Open an object (`BlobReader.open`)."""
        call = self._blocking.open
        stored = await self._run(call, object_id, size, data_key, undo=_close)
        return ThreadedObject(stored, self._run)

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        """Open staged bytes that grow (`BlobReader.open_staged`)."""
        call = self._blocking.open_staged
        opened = await self._run(call, upload_id, data_key, undo=_close)
        if isinstance(opened, BlockingGrowing):
            return GrowingObject(opened, upload_id, self._run, self.signals, self._look_seconds)
        return ThreadedObject(opened, self._run)

    async def open_stored(self, object_id: str, stored_size: int) -> OpenObject:
        """Open the stored bytes of an object (`BlobReader.open_stored`)."""
        call = self._blocking.open_stored
        stored = await self._run(call, object_id, stored_size, undo=_close)
        return ThreadedObject(stored, self._run)

    async def check(self, object_id: str, stored_size: int) -> None:
        """Check the presence and size of an object (`BlobReader.check`)."""
        await self._run(self._blocking.check, object_id, stored_size)

    def check_cached(self, object_id: str, stored_size: int) -> bool:  # noqa: ARG002
        """Return False: a blocking call may wait."""
        return False

    async def stage(
        self,
        upload_id: str,
        data_key: DataKey | None,
        algorithm: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> Staged:
        """Begin to stage bytes under a new id (`BlobWriter.stage`)."""
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
        """Hold staged bytes, or an object without a row, again (`BlobWriter.resume`)."""
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
        """Begin to stage bytes with a copy of others (`BlobWriter.stage_copy`)."""
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
    ) -> ThreadedStaged:
        return ThreadedStaged(self._run, lambda: self.signals.notify(upload_id), begun, begin)

    async def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        """Return the offset at which an upload can continue (`BlobWriter.resumable`)."""
        return await self._run(
            lambda: self._blocking.resumable(upload_id, received, is_sealed=is_sealed)
        )

    async def discard(self, upload_id: str) -> None:
        """Delete the staged bytes of an id (`BlobWriter.discard`)."""
        await self._run(self._blocking.discard, upload_id)
        self.signals.notify(upload_id)

    async def check_room(self) -> None:
        """Check that there is room for one more byte (`BlobWriter.check_room`)."""
        await self._run(self._blocking.check_room)

    async def remove_duplicate(self, object_id: str) -> None:
        """Delete a just committed object whose row was not written."""
        await self._run(self._blocking.delete, object_id)

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions by which objects are listed."""
        return self._blocking.partitions()

    def list_objects(self, partition: str | None = None) -> AsyncIterator[ListedBytes]:
        """Yield every object, or those of a partition."""
        return each_of(self._run, self._blocking.list_objects(partition))

    def list_ids(self, partition: str) -> AsyncIterator[str]:
        """Yield the ids of a partition's objects."""
        return each_of(self._run, self._blocking.list_ids(partition))

    def list_staged(self) -> AsyncIterator[ListedBytes]:
        """Yield all staged bytes by upload id."""
        return each_of(self._run, self._blocking.list_staged())

    async def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Make an object, or staged bytes, an orphan (`BlobSweeper.set_aside`)."""
        is_done = await self._run(
            lambda: self._blocking.set_aside(object_id, moment, staged_too=staged_too)
        )
        self.signals.notify(object_id)
        return is_done

    def list_orphans(self) -> AsyncIterator[Orphan]:
        """Yield every orphan."""
        return each_of(self._run, self._blocking.list_orphans())

    async def take_back(self, object_id: str) -> bool:
        """Put an orphan back where it was (`BlobSweeper.take_back`)."""
        return await self._run(self._blocking.take_back, object_id)

    async def delete_orphan(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan; do nothing if it is absent."""
        await self._run(self._blocking.delete_orphan, orphan)

    @asynccontextmanager
    async def scan_alone(self) -> AsyncIterator[bool]:
        """Hold the lock of orphan scans during the block; yield False if another process has it."""
        lock = self._blocking.scan_alone()

        def leave() -> None:
            lock.__exit__(None, None, None)

        is_alone = await self._run(lock.__enter__, undo=lambda _: leave())
        try:
            yield is_alone
        finally:
            await self._run(leave)

    async def generation(self) -> str | None:
        """Return the noted generation, or None."""
        return await self._run(self._blocking.generation)

    async def note_generation(self, generation: str) -> None:
        """Note the generation of the database (`BlobSweeper.note_generation`)."""
        await self._run(self._blocking.note_generation, generation)

    async def delete(self, object_ids: Sequence[str]) -> Deleted:
        """Delete the bytes of objects (`BlobSweeper.delete`)."""
        return await self._run(_delete, self._blocking, object_ids)


class ThreadedStaged(Staged):
    """Staged bytes of a `ThreadedStore`; it calls `notify` after each change.

    If they are not `begun`, the first write, flush or commit has them `begin`.
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
        """Return the number of staged bytes."""
        return 0 if self._begun is None else self._begun.offset

    async def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        *,
        data_key: DataKey | None,
    ) -> None:
        """Go to the acknowledged `offset` (`Staged.rewind`)."""
        begun, is_sealed = self._begun, data_key is not None
        if begun is not None and begun.rewinds_at_once(offset, is_sealed=is_sealed):
            begun.rewind(offset, digests, algorithm, data_key)
        else:
            await self._run(lambda: self._held().rewind(offset, digests, algorithm, data_key))
        self._notify()

    def write(self, view: memoryview, /) -> None:
        """Append bytes and hash them. Blocks."""
        self._held().write(view)
        self._notify()

    def flush(self) -> Mapping[str, str]:
        """Make the staged bytes durable. Blocks."""
        return self._held().flush()

    def commit(self, expected: Digest | None) -> Stored:
        """Verify the bytes and make them an object (`Staged.commit`). Blocks."""
        try:
            return self._held().commit(expected)
        finally:
            self._notify()

    async def discard(self) -> None:
        """Delete the staged bytes (`Staged.discard`)."""
        self._begin = None
        if self._begun is not None:
            await self._run(self._begun.discard)
        self._notify()

    async def aclose(self) -> None:
        """End the hold and keep the bytes (`Staged.aclose`)."""
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


if TYPE_CHECKING:
    _: type[BlobStore] = ThreadedStore
