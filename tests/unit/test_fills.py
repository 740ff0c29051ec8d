"""How many blobs a process fetches at once."""

from __future__ import annotations

import asyncio

import pytest

from registry.services.pull_through.feed import Feed
from registry.services.pull_through.fills import Fills
from registry.services.pull_through.single_flight import SingleFlight
from registry.services.pull_through.turns import MOST_OF_ACCOUNT

pytestmark = pytest.mark.anyio


async def test_blobs_wait_for_their_turn_and_no_account_takes_all() -> None:
    fills, go_on = Fills(), asyncio.Event()
    running: list[Feed] = []
    is_others_turn = asyncio.Event()

    async def run(feed: Feed) -> None:
        running.append(feed)
        if feed is other:
            is_others_turn.set()
        await go_on.wait()
        feed.finish()

    feeds = [fills.join("one", str(number), run) for number in range(100)]
    other = fills.join("two", "0", run)
    await asyncio.wait_for(is_others_turn.wait(), 60)
    assert len(running) < len(feeds)
    go_on.set()
    await fills.settled()
    assert all(feed.is_right for feed in (*feeds, other))
    assert sorted(map(id, running)) == sorted(map(id, (*feeds, other)))


async def test_a_fill_that_is_broken_off_before_its_turn_tells_its_readers() -> None:
    fills = Fills()

    async def run(feed: Feed) -> None:
        await asyncio.Event().wait()

    feeds = [fills.join("one", str(number), run) for number in range(100)]
    await fills.aclose()
    await asyncio.sleep(0)
    assert all(feed.failure is not None for feed in feeds)


async def test_what_callers_have_left_is_not_more_than_so_much_at_once() -> None:
    fetches: SingleFlight[str] = SingleFlight()
    go_on, running, begun = asyncio.Event(), 0, asyncio.Event()

    async def fetch() -> str:
        nonlocal running
        running += 1
        if running == MOST_OF_ACCOUNT:
            begun.set()
        await go_on.wait()
        return "here"

    async def other() -> str:
        return "of another account"

    callers = [asyncio.create_task(fetches.join("one", number, fetch)) for number in range(200)]
    await asyncio.wait_for(begun.wait(), 60)
    for caller in callers[:-1]:
        caller.cancel()
    assert await fetches.join("two", "other", other) == "of another account"
    assert running == MOST_OF_ACCOUNT
    go_on.set()
    assert await callers[-1] == "here"
    assert running == len(callers)
    assert not fetches.is_busy
