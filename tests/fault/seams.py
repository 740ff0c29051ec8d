"""A database and a store that fail, or die, before or after a chosen call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from cloudcore.db.base import Database
from registry.blobstore.base import BlobStore, Staged
from tests.dying import Kind, PassingDatabase

T = TypeVar("T")


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

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of a store
        call = getattr(self._store, name)
        if name in ("stage", "resume", "stage_copy"):
            return partial(self._stage, name, call)
        if name in ("discard", "remove_duplicate", "set_aside", "take_back"):
            return partial(_awaited, self._steps, name, call)
        return call

    async def _stage(
        self,
        name: str,
        call: Callable[..., Awaitable[Staged]],
        /,
        *given: object,
        **named: object,
    ) -> _SteppingStaged:
        self._steps.take(f"before {name}")
        staged = await call(*given, **named)
        try:
            self._steps.take(f"after {name}")
        except BaseException:
            await staged.aclose()  # a dead process holds nothing, and a failed call neither
            raise
        return _SteppingStaged(staged, self._steps)


class _SteppingStaged:
    """Staged bytes of a stepping store."""

    def __init__(self, staged: Staged, steps: Steps) -> None:
        self._staged = staged
        self._steps = steps

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of staged bytes
        found = getattr(self._staged, name)
        if name in ("rewind", "discard"):
            return partial(_awaited, self._steps, name, found)
        if name in ("write", "flush", "commit"):
            return partial(_called, self._steps, name, found)
        return found


async def _awaited(
    steps: Steps,
    name: str,
    call: Callable[..., Awaitable[T]],
    /,
    *given: object,
    **named: object,
) -> T:
    steps.take(f"before {name}")
    result = await call(*given, **named)
    steps.take(f"after {name}")
    return result


def _called(
    steps: Steps,
    name: str,
    call: Callable[..., T],
    /,
    *given: object,
    **named: object,
) -> T:
    steps.take(f"before {name}")
    result = call(*given, **named)
    steps.take(f"after {name}")
    return result
