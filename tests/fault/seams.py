"""A database and a store that fail, or die, before or after a chosen call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Concatenate

from cloudcore.db.base import Connection, Database, P, T
from registry.blobstore.base import BlobStore, Orphan, Staged, Stored, StoredObject, StoredRange
from registry.oci.digest import Digest


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


class SteppingDatabase:
    """A database whose every write is two steps: before it, and after it was committed."""

    def __init__(self, database: Database, steps: Steps) -> None:
        self._database = database
        self._steps = steps

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Read."""
        return await self._database.read(query, *args, **kwargs)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write, with a step before and after."""
        self._steps.take(f"before {change.__name__}")
        result = await self._database.write(change, *args, **kwargs)
        self._steps.take(f"after {change.__name__}")
        return result

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write, with a step before and after."""
        self._steps.take(f"before {change.__name__}")
        result = await self._database.write_relaxed(change, *args, **kwargs)
        self._steps.take(f"after {change.__name__}")
        return result

    def listen(self, listener: Callable[[], None]) -> None:
        """Listen."""
        self._database.listen(listener)

    async def close(self) -> None:
        """Close."""
        await self._database.close()


class SteppingStore:
    """A store whose every call that changes something is two steps."""

    def __init__(self, store: BlobStore, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def open(
        self, object_id: str, start: int = 0, stop: int | None = None, size: int | None = None
    ) -> StoredRange:
        """Open."""
        return self._store.open(object_id, start, stop, size)

    def check(self, object_id: str, size: int) -> None:
        """Check."""
        self._store.check(object_id, size)

    def stage(self, upload_id: str, algorithm: str | None = None) -> Staged:
        """Stage, with a step before and after."""
        return self._opened("stage", lambda: self._store.stage(upload_id, algorithm))

    def resume(self, upload_id: str) -> Staged:
        """Resume, with a step before and after."""
        return self._opened("resume", lambda: self._store.resume(upload_id))

    def _opened(self, name: str, call: Callable[[], Staged]) -> Staged:
        self._steps.take(f"before {name}")
        staged = call()
        try:
            self._steps.take(f"after {name}")
        except BaseException:
            staged.close()  # a dead process holds nothing, and a failed call neither
            raise
        return SteppingStaged(staged, self._steps)

    def discard(self, upload_id: str) -> None:
        """Discard, with a step before and after."""
        self._steps.take("before discard")
        self._store.discard(upload_id)
        self._steps.take("after discard")

    def check_room(self) -> None:
        """Check the room."""
        self._store.check_room()

    def remove_duplicate(self, object_id: str) -> None:
        """Remove a duplicate, with a step before and after."""
        self._steps.take("before remove_duplicate")
        self._store.remove_duplicate(object_id)
        self._steps.take("after remove_duplicate")

    def replace(self, object_id: str, new_id: str) -> None:
        """Replace an object's bytes, with a step before and after."""
        self._steps.take("before replace")
        self._store.replace(object_id, new_id)
        self._steps.take("after replace")

    def list_objects(self, shard: int | None = None) -> Iterator[StoredObject]:
        """List objects."""
        return self._store.list_objects(shard)

    def list_staged(self) -> Iterator[StoredObject]:
        """List what is staged."""
        return self._store.list_staged()

    def list_ids(self, shard: int) -> Iterator[str]:
        """List the ids of objects."""
        return self._store.list_ids(shard)

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Set aside, with a step before and after."""
        self._steps.take("before set_aside")
        is_done = self._store.set_aside(object_id, moment, staged_too=staged_too)
        self._steps.take("after set_aside")
        return is_done

    def list_orphans(self) -> Iterator[Orphan]:
        """List orphans."""
        return self._store.list_orphans()

    def take_back(self, object_id: str) -> bool:
        """Take back, with a step before and after."""
        self._steps.take("before take_back")
        is_done = self._store.take_back(object_id)
        self._steps.take("after take_back")
        return is_done

    def delete_orphan(self, orphan: Orphan) -> None:
        """Delete an orphan."""
        self._store.delete_orphan(orphan)

    def scan_alone(self) -> AbstractContextManager[bool]:
        """Scan alone."""
        return self._store.scan_alone()

    def generation(self) -> str | None:
        """Return the generation."""
        return self._store.generation()

    def note_generation(self, generation: str) -> None:
        """Note a generation."""
        self._store.note_generation(generation)

    def delete(self, object_id: str) -> None:
        """Delete."""
        self._store.delete(object_id)


class SteppingStaged(Staged):
    """Staged bytes of a `SteppingStore`."""

    def __init__(self, staged: Staged, steps: Steps) -> None:
        self._staged = staged
        self._steps = steps

    @property
    def offset(self) -> int:
        """Return how many bytes are staged."""
        return self._staged.offset

    def rewind(
        self, offset: int, digests: Mapping[str, str] | None = None, algorithm: str | None = None
    ) -> None:
        """Rewind, with a step before and after."""
        self._steps.take("before rewind")
        self._staged.rewind(offset, digests, algorithm)
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

    def commit(self, expected: Digest) -> Stored:
        """Commit, with a step before and after."""
        self._steps.take("before commit")
        stored = self._staged.commit(expected)
        self._steps.take("after commit")
        return stored

    def discard(self) -> None:
        """Discard, with a step before and after."""
        self._steps.take("before discard")
        self._staged.discard()
        self._steps.take("after discard")

    def close(self) -> None:
        """Close."""
        self._staged.close()
