"""Several tasks in one process, one step of one of them at a time, in an order chance draws.

Tasks are threads that hand a baton on, so a step may be anywhere: in a coroutine, below it in a
plain call, in the middle of a listing. The same seed gives the same order. Coroutines run without
an event loop (`drive`), for nothing they await is ever left waiting.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

import pytest

from cloudcore.threads import Threads
from registry.gc.object_check import Pace

P = ParamSpec("P")
T = TypeVar("T")

EAGERNESS: Final = (0.1, 0.3, 0.6, 1.0)
"""How likely another task takes over at a step: some races need a long stay, others none."""


class Died(BaseException):
    """The task's process ended here; nothing of the registry may catch this."""


class Abandoned(BaseException):
    """Another task has failed, and so has the run."""


class _Task:
    def __init__(self, work: Callable[[], None], fatal_step: int | None) -> None:
        self.work = work
        self.fatal_step = fatal_step
        self.is_dead = False
        self.steps = 0
        self.baton = threading.Lock()
        self.baton.acquire()


class Interleaving:
    """A run of tasks; `trace` tells what each did, in order."""

    def __init__(self, rng: random.Random) -> None:
        self.trace: list[str] = []
        self.moment = 0
        """How many steps were taken: the time of this run."""
        self._rng = rng
        self._eagerness = rng.choice(EAGERNESS)
        self._tasks: dict[str, _Task] = {}
        self._current = ""
        self._over = threading.Lock()
        self._failure: BaseException | None = None

    def run(self, tasks: Sequence[tuple[str, Callable[[], None], int | None]]) -> None:
        """Run named tasks to their ends, and raise what one of them raised.

        The number says at which of its steps a task dies, if it comes so far.
        """
        for name, work, fatal_step in tasks:
            self._tasks[name] = _Task(work, fatal_step)
        threads = [
            threading.Thread(target=self._carry_out, args=(task,)) for task in self._tasks.values()
        ]
        self._over.acquire()
        for thread in threads:
            thread.start()
        self._hand_on()
        with self._over:
            pass
        for thread in threads:
            thread.join()
        self._tasks.clear()
        if self._failure is not None:
            raise self._failure

    def step(self, what: str) -> None:
        """Let others go first, if chance will have it; outside of a run nobody is there."""
        if not self._tasks:
            return
        name, task = self._current, self._tasks[self._current]
        if task.is_dead:
            raise Died
        self.moment += 1
        task.steps += 1
        if task.steps == task.fatal_step:
            task.is_dead = True
            self.trace.append(f"{name} dies before {what}")
            raise Died
        if len(self._tasks) > 1 and self._rng.random() < self._eagerness:
            self._hand_on()
            task.baton.acquire()
        if self._failure is not None:
            raise Abandoned
        self.trace.append(f"{name}: {what}")

    def _hand_on(self) -> None:
        self._current = self._rng.choice(list(self._tasks))
        self._tasks[self._current].baton.release()

    def _carry_out(self, task: _Task) -> None:
        task.baton.acquire()
        try:
            if self._failure is None:
                task.work()
        except (Died, Abandoned):
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._failure = self._failure or error
        if len(self._tasks) == 1:
            self._tasks.clear()
            self._over.release()
            return
        del self._tasks[self._current]
        self._hand_on()


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing but its turn, and return its result."""
    while True:
        try:
            awaited = coroutine.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        assert awaited is None, f"it waits for {awaited}"


@contextmanager
def no_other_threads() -> Iterator[None]:
    """Call in the thread that awaits what would have another: its steps are the task's own."""

    async def call(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    async def call_at_pace(
        _: Pace, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return function(*args, **kwargs)

    async def call_of_one_use(
        _: Threads, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return function(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", call)
        patch.setattr(Threads, "__call__", call_of_one_use)
        patch.setattr(Pace, "in_thread", call_at_pace)
        yield
