"""Bulk jobs and cancellation: whoever is cancelled gets its files back only from a quiet thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from cloudcore.serving.asgi import receive_into
from cloudcore.serving.bodies.bulk import CATCH_UP_BYTES, BulkJob, BulkPool, BulkStep, Scratch
from cloudcore.serving.limits import ServerLimits


class SlowJob(BulkJob[str]):
    """Holds its thread until it is let go, as a write to a slow disk does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: BulkPool) -> None:
        super().__init__(loop, pool, ServerLimits(), None)
        self.entered = asyncio.Event()
        self.thread: threading.Thread | None = None
        self.let_go = threading.Event()
        self.left = False

    def advance(self, scratch: Scratch) -> BulkStep:
        self.thread = threading.current_thread()
        self.loop.call_soon_threadsafe(self.entered.set)
        self.let_go.wait()
        self.left = True
        return BulkStep.DONE

    def conclude(self) -> str:
        return "done"


async def cancelled(task: asyncio.Task[object], entered: asyncio.Event) -> None:
    """Cancel `task` while its thread works, twice, and see it wait."""
    await entered.wait()
    for _ in range(2):
        task.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.wait((task,))), 0.05)
        assert not task.done()


async def test_cancellation_waits_for_the_thread() -> None:
    pool = BulkPool("test", 1)
    job = SlowJob(asyncio.get_running_loop(), pool)
    task: asyncio.Task[object] = asyncio.create_task(job.run())
    await cancelled(task, job.entered)
    job.let_go.set()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert job.left
    pool.close()


async def test_cancellation_waits_on_a_stock_server_too() -> None:
    loop = asyncio.get_running_loop()
    entered, let_go = asyncio.Event(), threading.Event()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"x", "more_body": False}

    def sink(view: memoryview) -> None:
        loop.call_soon_threadsafe(entered.set)
        let_go.wait()

    task: asyncio.Task[object] = asyncio.create_task(
        receive_into({}, receive, sink, lambda complete: complete)
    )
    await cancelled(task, entered)
    let_go.set()
    await asyncio.wait((task,))
    assert task.cancelled()


class CountedJob(BulkJob[str]):
    """Moves `step` bytes in each turn, until it has moved `size`; notes its turns."""

    def __init__(self, pool: BulkPool, name: str, size: int, step: int, turns: list[str]) -> None:
        super().__init__(asyncio.get_running_loop(), pool, ServerLimits(), None)
        self.name, self.size, self.step, self.turns = name, size, step, turns

    def advance(self, scratch: Scratch) -> BulkStep:
        self.turns.append(self.name)
        self.moved += self.step
        return BulkStep.DONE if self.moved >= self.size else BulkStep.YIELD

    def conclude(self) -> str:
        return self.name


async def test_who_has_moved_the_least_comes_first_and_newcomers_starve_nobody() -> None:
    pool, turns = BulkPool("test", 1), list[str]()
    gate = SlowJob(asyncio.get_running_loop(), pool)
    holding = asyncio.create_task(gate.run())
    await gate.entered.wait()
    jobs = [
        CountedJob(pool, "a", 40, 20, turns),
        CountedJob(pool, "b", 40, 10, turns),
    ]
    running = [asyncio.create_task(each.run()) for each in jobs]
    await asyncio.sleep(0)  # both are submitted
    gate.let_go.set()
    await asyncio.gather(holding, *running)
    assert "".join(turns) == "abbabb"

    late = CountedJob(pool, "c", 5, 5, turns)
    assert await late.run() == "c"
    assert late.turn == 30 + 5  # it began where the others were, not before them
    pool.close()


async def test_who_waited_for_its_client_catches_up_only_so_far() -> None:
    pool, turns = BulkPool("test", 1), list[str]()
    waited = CountedJob(pool, "w", 1, 1, turns)
    waited.turn = 0
    far = CountedJob(pool, "f", CATCH_UP_BYTES * 5, CATCH_UP_BYTES, turns)
    await far.run()
    await waited.run()
    assert waited.turn == 3 * CATCH_UP_BYTES + 1  # behind the last turn, which began at 4
    pool.close()


async def test_threads_that_nobody_needs_end() -> None:
    pool = BulkPool("test", 3, idle_seconds=0.05)
    jobs = [SlowJob(asyncio.get_running_loop(), pool) for _ in range(3)]
    running = [asyncio.create_task(job.run()) for job in jobs]
    for job in jobs:
        await job.entered.wait()
        job.let_go.set()
    assert await asyncio.gather(*running) == ["done"] * 3
    for job in jobs:
        assert job.thread is not None
        job.thread.join(60)
        assert not job.thread.is_alive()
    assert await CountedJob(pool, "another", 1, 1, []).run() == "another"
    pool.close()


async def test_memory_is_given_back_once_when_several_threads_have_ended() -> None:
    given, ended = list[int](), threading.Event()
    loop = asyncio.get_running_loop()

    def give_back() -> None:
        given.append(sum(job.thread is not None and job.thread.is_alive() for job in jobs))
        ended.set()

    pool = BulkPool("test", 3, idle_seconds=0.05, on_fewer=give_back)
    jobs = [SlowJob(loop, pool) for _ in range(3)]
    running = [asyncio.create_task(job.run()) for job in jobs]
    for job in jobs:
        await job.entered.wait()
        job.let_go.set()
    await asyncio.gather(*running)
    assert await asyncio.to_thread(ended.wait, 60)
    for job in jobs:
        assert job.thread is not None
        job.thread.join(60)
    assert len(given) == 1
    pool.close()


async def test_no_job_waits_for_a_thread_that_ends() -> None:
    pool = BulkPool("test", 2, idle_seconds=0.0002)
    for number in range(300):
        names = [f"{number} {each}" for each in range(1 + number % 4)]
        jobs = [CountedJob(pool, name, 2, 1, []) for name in names]
        async with asyncio.timeout(20):
            assert await asyncio.gather(*(job.run() for job in jobs)) == names
    pool.close()
