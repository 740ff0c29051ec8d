"""Calls of one thread run one by one, in the turns of accounts; pools do not take each other's."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any
from weakref import ref

import pytest

from cloudcore.threads import FairThread, Threads


class Gate:
    """A call that blocks its thread until it is let go."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(60)


async def test_an_account_waits_for_one_call_of_each_other_account_however_many_they_have() -> None:
    thread, gate, order = FairThread("test"), Gate(), list[str]()
    calls = [asyncio.create_task(thread.run("a", gate))]
    assert await asyncio.to_thread(gate.begun.wait, 60)
    calls += [
        asyncio.create_task(thread.run(name[0], order.append, name))
        for name in ("a1", "a2", "a3", "b1", "b2", "c1")
    ]
    await asyncio.sleep(0)  # all stand in line
    gate.may_end.set()
    await asyncio.gather(*calls)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_what_is_cancelled_before_its_turn_is_not_done_and_errors_are_raised() -> None:
    thread, gate, order = FairThread("test"), Gate(), list[str]()
    first = asyncio.create_task(thread.run("a", gate))
    assert await asyncio.to_thread(gate.begun.wait, 60)
    dropped = asyncio.create_task(thread.run("a", order.append, "dropped"))
    await asyncio.sleep(0)
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    gate.may_end.set()
    await first
    with pytest.raises(ZeroDivisionError):
        await thread.run("a", divmod, 1, 0)
    await thread.run("b", order.append, "last")
    assert order == ["last"]


class Refused(Exception):
    """An error of a call, which keeps what the call was given."""


async def test_an_error_and_what_it_was_about_are_freed_without_a_collection() -> None:
    """Else a refused document of megabytes stays until the next collection."""

    async def refusal(document: Gate) -> ref[BaseException]:
        def refuse(document: Gate) -> None:
            raise Refused(document)

        try:
            await FairThread("test").run("a", refuse, document)
        except Refused as error:
            return ref(error)
        raise AssertionError

    gc.disable()
    try:
        document = Gate()
        kept: list[ref[Any]] = [ref(document), await refusal(document)]
        del document
        for _ in range(200):  # what the thread has of it goes a moment later
            if not any(each() for each in kept):
                break
            await asyncio.sleep(0.01)
        assert [each() for each in kept] == [None, None]
    finally:
        gc.enable()


def test_a_thread_serves_one_event_loop_after_another() -> None:
    thread = FairThread("test")
    for number in range(2):
        assert asyncio.run(thread.run("a", abs, -number)) == number


async def test_a_full_pool_keeps_no_other_from_its_calls() -> None:
    full, other, gates = Threads("full"), Threads("other"), [Gate() for _ in range(50)]
    waiting = [asyncio.create_task(full(gate)) for gate in gates]
    try:
        assert await asyncio.to_thread(gates[0].begun.wait, 60)
        assert await other(abs, -1) == 1
        assert await asyncio.to_thread(abs, -1) == 1
    finally:
        for gate in gates:
            gate.may_end.set()
        await asyncio.gather(*waiting)
    full.close()
    assert await full(abs, -2) == 2, "it was closed, and starts threads again"
    full.close()
