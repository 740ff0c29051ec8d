"""Idempotency under races and deaths: exactly one effect for each key.

``SOAK=20`` in the environment takes twenty times as many keys.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Concatenate, Final, Literal

import httpx
import pytest

from cloudcore.db.base import Connection, Database, P, T
from cloudcore.web.idempotency import KEPT_SECONDS, LEASE_SECONDS
from tests.control_plane import Options, World, count_rows, make_world, open_world
from tests.databases import opened
from tests.dying import Kind, PassingDatabase
from tests.soak import time_limit, times

PARALLEL: Final = 20
KEYS: Final = times(6)
LONG: Final = time_limit(120)


async def create(world: World, name: str, key: str) -> httpx.Response:
    return await world.ask("POST", "/v1/things", {"name": name}, key=key)


def name_of(number: int) -> str:
    """Return a name for a number; names have letters only."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


@LONG
async def test_of_twenty_at_once_one_has_the_effect(plane: World, database_url: str) -> None:
    """Two processes' worth of connections, so that the database alone decides."""
    async with opened(database_url) as other_database:
        other = make_world(other_database)
        other.tokens.holders = plane.tokens.holders
        found = [
            await asyncio.gather(
                *(
                    create(plane if turn % 2 else other, name_of(number), f"k{number}")
                    for turn in range(PARALLEL)
                )
            )
            for number in range(KEYS)
        ]
    for answers in found:
        statuses = Counter(answer.status_code for answer in answers)
        assert set(statuses) <= {201, 409}
        made = [answer for answer in answers if answer.status_code == 201]
        assert len({answer.content for answer in made}) == 1
        assert [("idempotency-replayed" in answer.headers) for answer in made].count(False) == 1
        for waiting in answers:
            if waiting.status_code == 409:
                assert waiting.headers["retry-after"] == "1"
                assert waiting.json()["error"]["code"] == "CONFLICT"
    assert count_rows(database_url, "things") == KEYS


async def test_racing_for_a_name_under_keys_of_their_own_one_wins(
    plane: World, database_url: str
) -> None:
    answers = await asyncio.gather(*(create(plane, "a", f"k{n}") for n in range(PARALLEL)))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: PARALLEL - 1}
    again = await asyncio.gather(*(create(plane, "a", f"k{n}") for n in range(PARALLEL)))
    assert [one.content for one in again] == [one.content for one in answers]
    assert all("idempotency-replayed" in answer.headers for answer in again)
    assert count_rows(database_url, "things") == 1


class Death(BaseException):
    """The process is no more: no code of ours sees this as an error to answer."""


Moment = Literal["before", "during", "after"]
"""Of a write; `during` is after the change ran and before its transaction ended."""


class Mortal(PassingDatabase):
    """Dies at a chosen write, and stays dead."""

    def __init__(self, database: Database, fatal_write: int, moment: Moment) -> None:
        super().__init__(database)
        self._left = fatal_write
        self._moment = moment

    async def before(self, kind: Kind, _call: object) -> None:
        if self._left == 0:
            raise Death
        self._left -= kind != "read"
        if self._left == 0 and self._moment == "before":
            raise Death

    def meddled(
        self, call: Callable[Concatenate[Connection, P], T]
    ) -> Callable[Concatenate[Connection, P], T]:
        def unfinished(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
            call(connection, *args, **kwargs)
            raise Death

        return unfinished if self._left == 0 and self._moment == "during" else call

    async def after(self, _kind: Kind, _call: object, _result: object) -> None:
        if self._left == 0:
            raise Death


@asynccontextmanager
async def revived_after(url: str, fatal_write: int, moment: Moment) -> AsyncIterator[World]:
    """Let a process die in the middle of creating ``a`` under ``k``; open one that takes over."""
    dying = Options(wrap=lambda inner: Mortal(inner, fatal_write, moment))
    async with open_world(url, dying) as dead:
        with pytest.raises(Death):
            await create(dead, "a", "k")
    async with open_world(url) as world:
        world.tokens.holders = dead.tokens.holders
        yield world


Left = Literal["nothing", "lease", "outcome"]
STEPS: Final[tuple[tuple[int, Moment, Left], ...]] = (
    *((1, "before", "nothing"), (1, "during", "nothing"), (1, "after", "lease")),
    *((2, "before", "lease"), (2, "during", "lease"), (2, "after", "outcome")),
)
"""Writes of an attempt, when in them its process dies, and what it leaves."""


@pytest.mark.parametrize(("fatal_write", "moment", "left"), STEPS)
async def test_a_death_leaves_nothing_then_a_lease_then_effect_and_outcome(
    database_url: str, fatal_write: int, moment: Moment, left: Left
) -> None:
    """Before the claim, before the commit, after it."""
    async with revived_after(database_url, fatal_write, moment) as world:
        for seconds in (LEASE_SECONDS - 1, 1) if left == "lease" else ():
            early = await create(world, "a", "k")
            assert (early.status_code, early.headers["retry-after"]) == (409, "1")
            world.pass_time(seconds)
        made = await create(world, "a", "k")
        assert made.status_code == 201
        assert ("idempotency-replayed" in made.headers) == (left == "outcome")
        assert (await create(world, "a", "k")).content == made.content
    assert count_rows(database_url, "things") == 1


@pytest.mark.parametrize("moment", ["before", "during", "after"])
async def test_a_death_while_a_refusal_is_recorded_does_no_harm(
    database_url: str, moment: Moment
) -> None:
    """Writes: the claim, the change that conflicts, the record of the conflict."""
    async with open_world(database_url) as world:
        assert (await create(world, "a", "other")).status_code == 201
    async with revived_after(database_url, 3, moment) as world:
        world.pass_time(LEASE_SECONDS)
        refused = await create(world, "a", "k")
        assert refused.status_code == 409
        assert ("idempotency-replayed" in refused.headers) == (moment == "after")
    assert count_rows(database_url, "things") == 1


@pytest.mark.parametrize("seconds", [LEASE_SECONDS, KEPT_SECONDS])
async def test_of_twenty_that_find_a_dead_attempt_one_has_the_effect(
    database_url: str, seconds: int
) -> None:
    async with revived_after(database_url, 2, "before") as world:
        world.pass_time(seconds)
        answers = await asyncio.gather(*(create(world, "a", "k") for _ in range(PARALLEL)))
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses[201] >= 1
        assert statuses[201] + statuses[409] == PARALLEL
        assert (await create(world, "a", "k")).status_code == 201
    assert count_rows(database_url, "things") == 1


@LONG
async def test_every_key_dies_once_and_then_is_raced_for(plane: World, database_url: str) -> None:
    """Each key's first attempt dies, at each step in turn; twenty retries make one effect."""
    for number in range(KEYS):
        fatal_write, moment, left = STEPS[number % len(STEPS)]
        dying = make_world(Mortal(plane.database, fatal_write, moment))
        dying.tokens.holders, dying.now = plane.tokens.holders, plane.now
        with pytest.raises(Death):
            await create(dying, name_of(number), f"k{number}")
        plane.pass_time(LEASE_SECONDS)
        racing = (create(plane, name_of(number), f"k{number}") for _ in range(PARALLEL))
        answers = await asyncio.gather(*racing)
        answers.append(await create(plane, name_of(number), f"k{number}"))
        made = [answer for answer in answers if answer.status_code == 201]
        assert {answer.status_code for answer in answers} <= {201, 409}
        assert len({answer.content for answer in made}) == 1
        assert made[-1] is answers[-1]
        first = [answer for answer in made if "idempotency-replayed" not in answer.headers]
        assert len(first) == (0 if left == "outcome" else 1)
    assert count_rows(database_url, "things") == KEYS


class Gated(PassingDatabase):
    """A database whose `write` waits at a gate of its own for each of the first two times."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.arrived = [asyncio.Event(), asyncio.Event()]
        self.gates = [asyncio.Event(), asyncio.Event()]
        self._writes = 0

    async def before(self, kind: Kind, _call: object) -> None:
        if kind != "write":
            return
        number = self._writes
        self._writes += 1
        if number < len(self.gates):
            self.arrived[number].set()
            await self.gates[number].wait()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_who_was_taken_over_has_no_effect(database_url: str, order: tuple[int, int]) -> None:
    """The first attempt outlives its lease and a retry takes over; both then reach for COMMIT."""
    async with open_world(database_url, Options(wrap=Gated)) as world:
        database = world.database
        assert isinstance(database, Gated)
        attempts = [asyncio.create_task(create(world, "a", "k"))]
        await database.arrived[0].wait()
        assert (await create(world, "a", "k")).status_code == 409
        world.pass_time(LEASE_SECONDS)
        attempts.append(asyncio.create_task(create(world, "a", "k")))
        await database.arrived[1].wait()
        for number in order:
            database.gates[number].set()
            await attempts[number]
        late, made = [await attempt for attempt in attempts]
        assert made.status_code == 201
        assert late.status_code == 409
        assert late.headers["retry-after"] == "1"
        replayed = await create(world, "a", "k")
        assert replayed.content == made.content
        assert "idempotency-replayed" in replayed.headers
    assert count_rows(database_url, "things") == 1
