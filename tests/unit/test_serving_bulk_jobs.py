"""Bulk jobs and cancellation: whoever is cancelled gets its files back only from a quiet thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from cloudcore.serving.body import receive_into
from cloudcore.serving.bulk import BulkJob, BulkPool, BulkStep, Scratch
from cloudcore.serving.limits import ServerLimits


class SlowJob(BulkJob[str]):
    """Holds its thread until it is let go, as a write to a slow disk does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: BulkPool) -> None:
        super().__init__(loop, pool, ServerLimits(), None)
        self.entered = asyncio.Event()
        self.let_go = threading.Event()
        self.left = False

    def advance(self, scratch: Scratch) -> BulkStep:
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
