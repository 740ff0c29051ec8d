"""Pulls are noted in memory and written in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Concatenate

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, P, T
from cloudcore.metering.usage import HOUR, SkuUse
from registry.errors import StoreUnavailable
from registry.metadata.repositories.daily_usage import DAY
from registry.services.images.pulls import Batch, PullLog
from tests.inprocess import START, ManualClock

MINUTE = 60 * MICROSECONDS


class Notebook:
    """A database that only takes relaxed writes, and writes down their arguments."""

    def __init__(self) -> None:
        self.written: list[dict[str, int]] = []
        self.counted: Counter[tuple[str, int]] = Counter()
        self.batches: list[Batch] = []
        self.is_down = False
        self.meanwhile: Callable[[], None] = lambda: None

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        raise AssertionError

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        raise AssertionError

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        assert change.__name__ == "record_pulls"
        self.meanwhile()
        if self.is_down:
            raise StoreUnavailable("down")
        (batch,) = args
        assert isinstance(batch, Batch)
        last: dict[str, int] = {}
        for (manifest_id, minute), count in batch.pulls.items():
            last[manifest_id] = max(minute * MINUTE, last.get(manifest_id, 0))
            self.counted[manifest_id, minute * MINUTE // DAY] += count
        self.written.append(last)
        self.batches.append(batch)
        return None  # type: ignore[return-value] # record_pulls returns nothing

    def listen(self, listener: Callable[[], None]) -> None:
        raise AssertionError

    def version(self) -> int | None:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError


async def test_one_write_an_image_and_minute() -> None:
    notebook, clock = Notebook(), ManualClock(START - START % MINUTE)
    minute = clock.now
    log = PullLog(notebook, clock)
    log.note("a")
    log.note("b")
    log.note("a")
    await log.flush()
    await log.flush()
    assert notebook.written == [{"a": minute, "b": minute}]
    clock.advance(60)
    log.note("a")
    await log.flush()
    assert notebook.written[1:] == [{"a": minute + MINUTE}]
    assert notebook.counted == {("a", minute // DAY): 3, ("b", minute // DAY): 1}


async def test_what_could_not_be_written_is_kept_and_newer_pulls_win() -> None:
    notebook, clock = Notebook(), ManualClock(START - START % MINUTE)
    minute = clock.now
    log = PullLog(notebook, clock)
    log.note("a")
    log.note("b")
    notebook.is_down = True

    def pull_again() -> None:
        clock.advance(60)
        log.note("a")

    notebook.meanwhile = pull_again
    with pytest.raises(StoreUnavailable):
        await log.flush()
    notebook.is_down = False
    notebook.meanwhile = lambda: None
    await log.flush()
    assert notebook.written == [{"a": minute + MINUTE, "b": minute}]
    assert notebook.counted == {("a", minute // DAY): 2, ("b", minute // DAY): 1}


async def test_use_that_could_not_be_written_counts_later_in_the_hour_in_which_it_was() -> None:
    notebook, clock = Notebook(), ManualClock(START - START % HOUR)
    hour = clock.now // HOUR
    log = PullLog(notebook, clock, "here")
    log.meter.count("acme", "queue.requests")
    log.cache.served("repository", 10)
    notebook.is_down = True
    with pytest.raises(StoreUnavailable):
        await log.flush()
    notebook.is_down = False
    clock.advance(3600)
    log.meter.count("acme", "queue.requests", 2)
    log.cache.served("repository", 5)
    await log.flush()
    (batch,) = notebook.batches
    assert batch.used == {
        SkuUse("acme", "here", "queue.requests", hour): 1,
        SkuUse("acme", "here", "queue.requests", hour + 1): 2,
    }
    assert (batch.cached.served_bytes, batch.hour, batch.region) == (
        {"repository": 15},
        hour + 1,
        "here",
    )
    await log.flush()
    assert len(notebook.batches) == 1, "nothing is written of nothing"
