"""A database and a store that fail, or die, before or after a chosen call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final, cast

from cloudcore.db.base import Database
from registry.blobstore.base import DataKey, Stored
from registry.blobstore.store import BlobStore, Staged
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

    @contextmanager
    def both(self, name: str) -> Iterator[None]:
        """Take a step before a call, and one after it, unless it failed."""
        self.take(f"before {name}")
        yield
        self.take(f"after {name}")


def passed_on(inner: object, name: str, names: Collection[str]) -> Any:  # noqa: ANN401 - any
    """Return an attribute of what stands behind a seam, if it is one of these names."""
    if name not in names:
        raise AttributeError(f"{name} is neither a step nor passed on", name=name)
    return getattr(inner, name)


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
    """A store whose every call that changes bytes is two steps; other calls are passed on."""

    STEPS: Final = frozenset(
        {
            *("stage", "resume", "stage_copy", "discard"),
            *("remove_duplicate", "set_aside", "take_back"),
        }
    )
    PASSED_ON: Final = frozenset(
        {
            *("open", "open_staged", "open_stored", "check", "check_cached"),
            *("resumable", "check_room", "partitions", "scan_alone"),
            *("list_objects", "list_ids", "list_staged", "list_orphans"),
            *("generation", "save_generation", "delete", "delete_orphan"),
        }
    )

    def __init__(self, store: BlobStore, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of a store
        return passed_on(self._store, name, self.PASSED_ON)

    async def stage(self, *arguments: Any, **options: Any) -> Staged:  # noqa: ANN401 - as the store
        return await self._opened("stage", self._store.stage(*arguments, **options))

    async def resume(self, upload_id: str) -> Staged:
        return await self._opened("resume", self._store.resume(upload_id))

    async def stage_copy(self, *arguments: Any, **options: Any) -> Staged:  # noqa: ANN401 - as above
        return await self._opened("stage_copy", self._store.stage_copy(*arguments, **options))

    async def _opened(self, name: str, call: Coroutine[Any, Any, Staged]) -> Staged:
        with closing(call):  # it is never awaited when the step before it fails
            self._steps.take(f"before {name}")
            staged = await call
        try:
            self._steps.take(f"after {name}")
        except BaseException:
            await staged.aclose()  # a dead process holds nothing, and a failed call neither
            raise
        return cast("Staged", SteppingStaged(staged, self._steps))

    async def discard(self, upload_id: str) -> None:
        with self._steps.both("discard"):
            await self._store.discard(upload_id)

    async def remove_duplicate(self, object_id: str) -> None:
        with self._steps.both("remove_duplicate"):
            await self._store.remove_duplicate(object_id)

    async def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        with self._steps.both("set_aside"):
            return await self._store.set_aside(object_id, moment, staged_too=staged_too)

    async def take_back(self, object_id: str) -> bool:
        with self._steps.both("take_back"):
            return await self._store.take_back(object_id)


class SteppingStaged:
    """Staged bytes of a `SteppingStore`."""

    STEPS: Final = frozenset({"rewind", "write", "flush", "commit", "discard"})
    PASSED_ON: Final = frozenset({"offset", "aclose"})

    def __init__(self, staged: Staged, steps: Steps) -> None:
        self._staged = staged
        self._steps = steps

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of staged bytes
        return passed_on(self._staged, name, self.PASSED_ON)

    async def rewind(self, *arguments: Any, data_key: DataKey | None) -> None:  # noqa: ANN401
        with self._steps.both("rewind"):
            await self._staged.rewind(*arguments, data_key=data_key)

    def write(self, view: memoryview, /) -> None:
        with self._steps.both("write"):
            self._staged.write(view)

    def flush(self) -> Mapping[str, str]:
        with self._steps.both("flush"):
            return self._staged.flush()

    def commit(self, expected: Digest | None) -> Stored:
        with self._steps.both("commit"):
            return self._staged.commit(expected)

    async def discard(self) -> None:
        with self._steps.both("discard"):
            await self._staged.discard()
