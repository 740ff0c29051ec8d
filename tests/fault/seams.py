"""A database and a store that fail, or die, before or after a chosen call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from typing import Any

from cloudcore.db.base import Database
from registry.blobstore.base import BlobStore, DataKey, OpenObject, Staged, Stored
from registry.blobstore.sweeper import Deleted, ListedBytes, Orphan
from registry.oci.digest import Digest
from tests.dying import Kind, PassingDatabase


class Died(BaseException):
    """The process ended here; nothing of the registry may catch this."""


class Steps:
    """The steps a request takes through the seams, and what happens at one of them."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self._number = -1
        self._strike: Callable[[], None] = lambda: None

    def strike_at(self, number: int, strike: Callable[[], None]) -> None:
        """Call `strike` at the step of this number, counted from now."""
        self.taken.clear()
        self._number, self._strike = number, strike

    def take(self, step: str) -> None:
        """Take a step."""
        self.taken.append(step)
        if len(self.taken) - 1 == self._number:
            self._strike()


class SteppingDatabase(PassingDatabase):
    """A database whose every write is two steps: before it, and after it was committed."""

    def __init__(self, database: Database, steps: Steps) -> None:
        super().__init__(database)
        self._steps = steps

    async def before(self, kind: Kind, call: Callable[..., object]) -> None:
        if kind != "read":
            self._steps.take(f"before {call.__name__}")

    async def after(self, kind: Kind, call: Callable[..., object], _result: object) -> None:
        if kind != "read":
            self._steps.take(f"after {call.__name__}")


class SteppingStore:
    """A store whose every call that changes something is two steps."""

    def __init__(self, store: BlobStore, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    async def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> OpenObject:
        """Open."""
        return await self._store.open(object_id, size, data_key)

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        """Open staged bytes."""
        return await self._store.open_staged(upload_id, data_key)

    async def open_stored(self, object_id: str, stored_size: int) -> OpenObject:
        """Open the stored bytes."""
        return await self._store.open_stored(object_id, stored_size)

    async def check(self, object_id: str, stored_size: int) -> None:
        """Check."""
        await self._store.check(object_id, stored_size)

    def check_cached(self, object_id: str, stored_size: int) -> bool:
        """Check at once."""
        return self._store.check_cached(object_id, stored_size)

    async def stage(
        self,
        upload_id: str,
        data_key: DataKey | None,
        algorithm: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> Staged:
        """Stage, with a step before and after."""
        return await self._opened(
            "stage", self._store.stage(upload_id, data_key, algorithm, is_fresh=is_fresh)
        )

    async def resume(self, upload_id: str) -> Staged:
        """Resume, with a step before and after."""
        return await self._opened("resume", self._store.resume(upload_id))

    async def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        *,
        data_key: DataKey | None,
        source_key: DataKey | None = None,
    ) -> Staged:
        """Stage a copy, with a step before and after."""
        call = self._store.stage_copy(
            upload_id, source_id, size, data_key=data_key, source_key=source_key
        )
        return await self._opened("stage_copy", call)

    async def _opened(self, name: str, call: Coroutine[Any, Any, Staged]) -> Staged:
        with closing(call):  # it is never awaited when the step before it fails
            self._steps.take(f"before {name}")
            staged = await call
        try:
            self._steps.take(f"after {name}")
        except BaseException:
            await staged.aclose()  # a dead process holds nothing, and a failed call neither
            raise
        return SteppingStaged(staged, self._steps)

    async def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        """Return from where an upload can go on."""
        return await self._store.resumable(upload_id, received, is_sealed=is_sealed)

    async def discard(self, upload_id: str) -> None:
        """Discard, with a step before and after."""
        self._steps.take("before discard")
        await self._store.discard(upload_id)
        self._steps.take("after discard")

    async def check_room(self) -> None:
        """Check the room."""
        await self._store.check_room()

    async def remove_duplicate(self, object_id: str) -> None:
        """Remove a duplicate, with a step before and after."""
        self._steps.take("before remove_duplicate")
        await self._store.remove_duplicate(object_id)
        self._steps.take("after remove_duplicate")

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions."""
        return self._store.partitions()

    def list_objects(self, partition: str | None = None) -> AsyncIterator[ListedBytes]:
        """List objects."""
        return self._store.list_objects(partition)

    def list_staged(self) -> AsyncIterator[ListedBytes]:
        """List what is staged."""
        return self._store.list_staged()

    def list_ids(self, partition: str) -> AsyncIterator[str]:
        """List the ids of objects."""
        return self._store.list_ids(partition)

    async def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Set aside, with a step before and after."""
        self._steps.take("before set_aside")
        is_done = await self._store.set_aside(object_id, moment, staged_too=staged_too)
        self._steps.take("after set_aside")
        return is_done

    def list_orphans(self) -> AsyncIterator[Orphan]:
        """List orphans."""
        return self._store.list_orphans()

    async def take_back(self, object_id: str) -> bool:
        """Take back, with a step before and after."""
        self._steps.take("before take_back")
        is_done = await self._store.take_back(object_id)
        self._steps.take("after take_back")
        return is_done

    async def delete_orphan(self, orphan: Orphan) -> None:
        """Delete an orphan."""
        await self._store.delete_orphan(orphan)

    def scan_alone(self) -> AbstractAsyncContextManager[bool]:
        """Scan alone."""
        return self._store.scan_alone()

    async def generation(self) -> str | None:
        """Return the generation."""
        return await self._store.generation()

    async def note_generation(self, generation: str) -> None:
        """Note a generation."""
        await self._store.note_generation(generation)

    async def delete(self, object_ids: Sequence[str]) -> Deleted:
        """Delete."""
        return await self._store.delete(object_ids)


class SteppingStaged(Staged):
    """Staged bytes of a `SteppingStore`."""

    def __init__(self, staged: Staged, steps: Steps) -> None:
        self._staged = staged
        self._steps = steps

    @property
    def offset(self) -> int:
        """Return how many bytes are staged."""
        return self._staged.offset

    async def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        *,
        data_key: DataKey | None,
    ) -> None:
        """Rewind, with a step before and after."""
        self._steps.take("before rewind")
        await self._staged.rewind(offset, digests, algorithm, data_key=data_key)
        self._steps.take("after rewind")

    def write(self, view: memoryview, /) -> None:
        """Write, with a step before and after."""
        self._steps.take("before write")
        self._staged.write(view)
        self._steps.take("after write")

    def flush(self) -> Mapping[str, str]:
        """Flush, with a step before and after."""
        self._steps.take("before flush")
        digests = self._staged.flush()
        self._steps.take("after flush")
        return digests

    def commit(self, expected: Digest | None) -> Stored:
        """Commit, with a step before and after."""
        self._steps.take("before commit")
        stored = self._staged.commit(expected)
        self._steps.take("after commit")
        return stored

    async def discard(self) -> None:
        """Discard, with a step before and after."""
        self._steps.take("before discard")
        await self._staged.discard()
        self._steps.take("after discard")

    async def aclose(self) -> None:
        """Close."""
        await self._staged.aclose()
