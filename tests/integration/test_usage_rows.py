"""The sums of use by hour: what is reported, and what is stored, sampled once for every hour."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import pytest

from cloudcore.db.base import Database
from cloudcore.family import skus_of
from cloudcore.metering import sampling
from cloudcore.metering.sampling import MOST_HOURS, forget_samples, sample
from cloudcore.metering.sku import Sku
from cloudcore.metering.usage import (
    HOUR,
    KEPT_HOURS,
    MAX_QUANTITY,
    SkuUse,
    add,
    forget_hours,
    report,
)
from registry.composition.families import FAMILIES
from registry.composition.family import REGISTRY
from registry.services.resource_kinds import STORAGE
from tests.databases import on_both_databases
from tests.inprocess import ManualClock
from tests.integration.pushing import World
from tests.recount import querying
from tests.used_hours import HourOfUse, usage

ACCOUNT = "0189b7c0-0000-7000-8000-00000000000a"
SKU = "queue.requests"


@on_both_databases
async def test_use_is_read_by_hours_and_skus(database: Database) -> None:
    """`tests/property/test_usage_reports.py` sums it up."""
    for quantity in (-1, MAX_QUANTITY + 1):
        with pytest.raises(ValueError, match=SKU):
            await database.write(report, ACCOUNT, "here", SKU, quantity, HOUR)
    for quantity, at in ((0, HOUR), (1, 10 * HOUR), (1, 11 * HOUR)):
        await database.write(report, ACCOUNT, "here", SKU, quantity, at)
    assert await database.read(usage, ACCOUNT, 0, 11) == [HourOfUse("here", SKU, 10, 1)]
    assert await database.read(usage, ACCOUNT, 10, 11, ["kms.keys"]) == []


async def test_hours_are_kept_for_25_months(database: Database) -> None:
    assert KEPT_HOURS * HOUR >= 25 * 31 * 24 * 3_600_000_000
    await database.write(add, {SkuUse(ACCOUNT, "here", SKU, hour): 1 for hour in (1, 2)})
    now = (KEPT_HOURS + 1) * HOUR
    assert [await database.write(forget_hours, at) for at in (now - 1, now, now)] == [0, 1, 0]
    assert await database.read(usage, ACCOUNT, 0, 100) == [HourOfUse("here", SKU, 2, 1)]


def test_what_is_no_sku_is_refused() -> None:
    for name, divisor in (("storage", 1), ("a.B", 1), ("a.b", 0)):
        with pytest.raises(ValueError, match="no SKU"):
            Sku(name, "something", "thing", divisor)
    assert Sku("registry.storage", "stored images", "GiB-month").service == "registry"


ACME, GLOBEX = (f"0189b7c0-0000-7000-8000-00000000000{digit}" for digit in "ab")
STORED = "test.storage"
FIRST = 500_000


class Killed(Exception):
    """The sampler died."""


@dataclass
class Shelf:
    """Accounts that store something, sampled by a clock."""

    database: Database
    clock: ManualClock = field(default_factory=lambda: ManualClock(FIRST * HOUR + HOUR // 2))
    stored: dict[str, int] = field(default_factory=lambda: {ACME: 5, GLOBEX: 7})

    async def measure(self, _database: Database) -> Mapping[str, int]:
        return dict(self.stored)

    async def sample(self) -> None:
        await sample(self.database, self.clock, "here", {STORED: self.measure})

    async def at(self, hour: int) -> None:
        """Sample as some chore does in an hour."""
        self.clock.now = hour * HOUR + HOUR // 3
        await self.sample()

    async def hours(self, account_id: str = ACME) -> dict[int, int]:
        """Return what was counted of an account, by hour after the first."""
        found = await self.database.read(usage, account_id, 0, 1 << 30)
        assert {(each.sku, each.region) for each in found} <= {(STORED, "here")}
        return {each.hour - FIRST: each.quantity for each in found}


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database)


@on_both_databases
async def test_each_hour_counts_once_however_often_it_is_sampled(shelf: Shelf) -> None:
    await shelf.at(FIRST)
    assert await shelf.hours() == {}, "what was before the first sample is not counted"
    await shelf.at(FIRST + 1)
    await shelf.at(FIRST + 1)
    assert await shelf.hours() == {0: 5}
    assert await shelf.hours(GLOBEX) == {0: 7}
    shelf.stored = {ACME: 6, GLOBEX: 0}
    await asyncio.gather(*(shelf.at(FIRST + 2) for _ in range(4)))
    assert await shelf.hours() == {0: 5, 1: 6}
    assert await shelf.hours(GLOBEX) == {0: 7}


@on_both_databases
async def test_hours_in_which_nothing_ran_are_made_up_for_once(shelf: Shelf) -> None:
    await shelf.at(FIRST)
    await shelf.at(FIRST + 1)
    shelf.stored[ACME] = 9
    await shelf.at(FIRST + 5)
    assert await shelf.hours() == {0: 5, 1: 9, 2: 9, 3: 9, 4: 9}
    shelf.stored[ACME] = 1
    await shelf.at(FIRST + 5)
    assert await shelf.hours() == {0: 5, 1: 9, 2: 9, 3: 9, 4: 9}


async def test_a_sampler_that_dies_is_begun_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_BATCH", 1)
    await shelf.at(FIRST)
    put, puts = sampling._put, 0

    def dies(*args: object) -> None:
        nonlocal puts
        puts += 1
        if puts == 4:  # after three hours' accounts, in the middle of one
            raise Killed
        put(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(sampling, "_put", dies)
    with pytest.raises(Killed):
        await shelf.at(FIRST + 3)
    assert (await shelf.hours(), await shelf.hours(GLOBEX)) == ({0: 5, 1: 5}, {0: 7})
    monkeypatch.setattr(sampling, "_put", put)
    await shelf.at(FIRST + 3)
    assert await shelf.hours() == {0: 5, 1: 5, 2: 5}
    assert await shelf.hours(GLOBEX) == {0: 7, 1: 7, 2: 7}


@on_both_databases
async def test_a_clock_that_is_set_counts_no_hour_twice(shelf: Shelf) -> None:
    await shelf.at(FIRST)
    await shelf.at(FIRST + 3)
    shelf.stored[ACME] = 8
    await shelf.at(FIRST + 1)  # back
    assert await shelf.hours() == {0: 5, 1: 5, 2: 5}
    # Ahead by years: no more than a month is billed, and the hours since count when they come.
    far = 10 * 365 * 24
    await shelf.at(FIRST + far)
    hours = await shelf.hours()
    assert len(hours) == 3 + MOST_HOURS
    assert max(hours) == far - 1
    await shelf.at(FIRST + 5)
    assert {hour: size for hour, size in (await shelf.hours()).items() if hour < 9} == {
        **dict.fromkeys(range(3), 5),
        **dict.fromkeys(range(3, 5), 8),
    }


async def test_a_clock_that_was_ahead_at_first_is_forgotten(shelf: Shelf) -> None:
    await shelf.at(FIRST + 100_000)
    await shelf.at(FIRST)
    await shelf.at(FIRST + 1)
    assert await shelf.hours() == {0: 5}


async def test_hours_that_are_forgotten_are_not_sampled_again(shelf: Shelf) -> None:
    await shelf.at(FIRST)
    await shelf.at(FIRST + 2)
    now = (FIRST + KEPT_HOURS) * HOUR
    assert await shelf.database.write(forget_samples, now) == 2  # with the one before the first
    await shelf.at(FIRST + 2)
    assert await shelf.hours() == {0: 5, 1: 5}


@on_both_databases
async def test_what_is_stored_of_images_is_each_blob_once(world: World, metadata_url: str) -> None:
    """The sum is that of all rows of objects, whose digests are shared by repositories."""
    image = await world.push_image("layer", "v1")
    other = await world.another("other")
    await other.push_image("layer", "v1")
    await other.push_image("another layer", "v2")
    assert image["size"] > 0
    measured = await REGISTRY.runtime.samples[STORAGE.name](world.install.database)
    with querying(metadata_url) as query:
        rows = query("SELECT size FROM blob_objects")
    assert len(rows) == 3
    assert measured == {world.account.id: sum(row[0] for row in rows)}


async def test_slices_of_objects_add_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.metadata.storage_usage._SLICE", 2)
    sizes = [len(f"layer {number}" * number) for number in range(1, 6)]
    for number in range(1, 6):
        await world.push_blob((f"layer {number}" * number).encode())
    measured = await REGISTRY.runtime.samples[STORAGE.name](world.install.database)
    assert measured == {world.account.id: sum(sizes)}


async def test_all_that_families_sample_is_among_their_skus(world: World) -> None:
    """And it is counted when it is sampled as the chore does."""
    samples = dict(chain(*(family.runtime.samples.items() for family in FAMILIES)))
    named = {*samples}
    assert named <= {each.name for each in skus_of(FAMILIES)}
    assert {"registry.storage", "storage.storage", "kms.keys"} <= named
    install = world.install
    blob = await world.push_blob(b"0123456789")
    made = await world.control.post("/v1/keys", json={"name": "mine"})
    assert made.status_code == 201, made.text
    clock = ManualClock(install.clock())
    await sample(install.database, clock, "local", samples)
    clock.advance(3600)
    await sample(install.database, clock, "local", samples)
    found = await install.database.read(usage, world.account.id, 0, 1 << 30)
    assert {each.sku: each.quantity for each in found} == {
        "registry.storage": blob["size"],
        "kms.keys": 1,
    }
