"""How many blobs a process fetches at once, for whom, and from where."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from registry.oci.digest import digest_of
from registry.oci.reference import Name
from registry.services.pull_through.concurrency import (
    MOST_AT_ONCE,
    MOST_OF_ACCOUNT_THERE,
    MOST_OF_UPSTREAM,
    MOST_UNLISTED,
    MOST_WAITING,
    NoSlot,
    SingleFlight,
    UpstreamSlots,
)
from registry.services.pull_through.feed import Feed
from registry.services.pull_through.fills import Fills, FillSource
from registry.upstream.base import Remote

pytestmark = pytest.mark.anyio


def source(account: str, number: int, at: str = "slow", size: int | None = 1) -> FillSource:
    """Return a blob of an account at an upstream."""
    remote = Remote(f"rule of {account}", f"https://{at}.example", "app", None)
    digest = digest_of(str(number).encode())
    return FillSource(Name(account, "hub/app"), f"of {account}", account, digest, remote, size)


class Running:
    """Fills that run until they are let go."""

    def __init__(self) -> None:
        self.fills = Fills()
        self.feeds: list[Feed] = []
        self.of: Counter[str] = Counter()
        """By account."""
        self.go_on = asyncio.Event()
        self._change = asyncio.Event()

    def join(self, wanted: FillSource) -> Feed:
        """Want a blob."""

        async def run(feed: Feed) -> None:
            self.of[wanted.account_id] += 1
            self._change.set()
            await self.go_on.wait()
            feed.finish()

        self.feeds.append(self.fills.join(wanted, run))
        return self.feeds[-1]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until as many run."""
        async with asyncio.timeout(60):
            while not is_so():
                self._change.clear()
                await self._change.wait()

    async def end(self) -> None:
        """Let all go on, and check that each got its turn."""
        self.go_on.set()
        await self.fills.settled()
        assert all(feed.is_right for feed in self.feeds)


async def test_an_account_has_few_turns_at_one_upstream() -> None:
    running = Running()
    for number in range(100):
        running.join(source("one", number))
    running.join(source("one", 0, at="another"))
    await running.until(lambda: running.of["one"] > MOST_OF_ACCOUNT_THERE)
    assert running.of["one"] == MOST_OF_ACCOUNT_THERE + 1
    await running.end()


async def test_no_account_takes_the_turns_of_others_however_many_upstreams_it_has() -> None:
    running = Running()
    for account in "abcdef":
        for number in range(50):
            running.join(source(account, number, at=f"{account}{number}"))
    running.join(source("other", 0))
    await running.until(lambda: running.of["other"] == 1)
    assert running.of["a"] * 3 <= MOST_AT_ONCE + 2
    assert running.of.total() < MOST_AT_ONCE
    await running.end()


async def test_no_upstream_takes_the_turns_of_others_however_many_accounts_name_it() -> None:
    running = Running()
    for account in "abcdefghij":
        for number in range(50):
            running.join(source(account, number))
    running.join(source("other", 0, at="another"))
    await running.until(lambda: running.of.total() > MOST_OF_UPSTREAM)
    assert running.of.total() == MOST_OF_UPSTREAM + 1
    await running.end()


async def test_few_blobs_are_fetched_at_once_that_no_manifest_lists() -> None:
    running = Running()
    for number in range(20):
        running.join(source("one", number, size=None))
    running.join(source("one", 99))
    await running.until(lambda: running.of["one"] > MOST_UNLISTED)
    assert running.of["one"] == MOST_UNLISTED + 1
    await running.end()


async def test_who_gets_no_turn_in_time_leaves_no_wish_behind() -> None:
    slots = UpstreamSlots(0.01)
    async with AsyncExitStack() as taken:
        for _ in range(MOST_OF_ACCOUNT_THERE):
            await taken.enter_async_context(slots.slot("one", "slow"))
        with pytest.raises(NoSlot):
            await taken.enter_async_context(slots.slot("one", "slow"))
    for _ in range(MOST_AT_ONCE):
        async with slots.slot("one", "slow"):
            pass


async def test_of_one_account_only_so_many_wait_for_a_turn() -> None:
    running = Running()
    many = MOST_OF_ACCOUNT_THERE + MOST_WAITING
    feeds = [running.join(source("one", number)) for number in range(many)]
    refused = [running.join(source("one", many + number)) for number in range(100)]
    for feed in refused:
        with pytest.raises(NoSlot):
            await feed.opened()
        running.feeds.remove(feed)
    running.join(source("one", 0, at="another"))
    running.join(source("two", 0))
    await running.until(lambda: running.of.total() == MOST_OF_ACCOUNT_THERE + 2)
    assert not any(feed.has_ended for feed in feeds)
    await running.end()


async def test_a_fill_that_is_broken_off_before_its_turn_tells_its_readers() -> None:
    running = Running()
    feeds = [running.join(source("one", number)) for number in range(100)]
    await running.fills.aclose()
    await asyncio.sleep(0)
    assert all(feed.failure is not None for feed in feeds)


async def test_who_comes_when_a_fill_was_given_up_gets_another_one() -> None:
    running = Running()
    left = running.join(source("one", 0))
    left.is_given_up = True
    another = running.join(source("one", 0))
    assert another is not left
    assert running.join(source("one", 0)) is another
    await running.end()


async def test_what_callers_have_left_is_not_more_than_so_much_at_once() -> None:
    fetches: SingleFlight[str] = SingleFlight()
    go_on, running, begun = asyncio.Event(), 0, asyncio.Event()

    async def fetch() -> str:
        nonlocal running
        running += 1
        if running == MOST_OF_ACCOUNT_THERE:
            begun.set()
        await go_on.wait()
        return "here"

    async def other() -> str:
        return "of another account"

    callers = [
        asyncio.create_task(fetches.join("one", "slow", number, fetch)) for number in range(200)
    ]
    await asyncio.wait_for(begun.wait(), 60)
    for caller in callers[:-1]:
        caller.cancel()
    assert await fetches.join("two", "slow", "other", other) == "of another account"
    assert running == MOST_OF_ACCOUNT_THERE
    go_on.set()
    assert await callers[-1] == "here"
    assert running == len(callers)
    assert not fetches.is_busy
