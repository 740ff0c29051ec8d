"""The sums of use by hour: their borders, their order, and how long they are kept."""

from __future__ import annotations

import pytest

from cloudcore.db.base import Connection, Database
from cloudcore.metering.sku import Sku
from cloudcore.metering.usage import (
    HOUR,
    KEPT_HOURS,
    MAX_QUANTITY,
    HourOfUse,
    SkuUse,
    add,
    forget_hours,
    forget_reports,
    report,
    usage,
)
from tests.databases import on_both_databases

ACCOUNT = "0189b7c0-0000-7000-8000-00000000000a"
OTHER = "0189b7c0-0000-7000-8000-00000000000b"
SKU = "queue.requests"


@on_both_databases
async def test_an_hour_begins_with_its_first_microsecond(database: Database) -> None:
    def told(tx: Connection) -> None:
        for at in (10 * HOUR - 1, 10 * HOUR, 11 * HOUR - 1, 11 * HOUR):
            assert report(tx, ACCOUNT, "here", SKU, 1, at)
        assert report(tx, OTHER, "here", SKU, 9, 10 * HOUR)

    await database.write(told)
    assert await database.read(usage, ACCOUNT, 9, 12) == [
        HourOfUse("here", SKU, 9, 1),
        HourOfUse("here", SKU, 10, 2),
        HourOfUse("here", SKU, 11, 1),
    ]
    assert await database.read(usage, ACCOUNT, 10, 11) == [HourOfUse("here", SKU, 10, 2)]
    assert await database.read(usage, ACCOUNT, 10, 11, ["kms.keys"]) == []


@on_both_databases
async def test_a_clock_set_back_adds_to_an_hour_that_is_past(database: Database) -> None:
    for at in (10 * HOUR, 9 * HOUR, 10 * HOUR):
        await database.write(report, ACCOUNT, "here", SKU, 1, at)
    found = await database.read(usage, ACCOUNT, 0, 100)
    assert [(each.hour, each.quantity) for each in found] == [(9, 1), (10, 2)]


@on_both_databases
async def test_a_key_is_of_an_account_and_a_sku(database: Database) -> None:
    places = [(ACCOUNT, SKU), (OTHER, SKU), (ACCOUNT, "kms.keys")]
    for _ in range(2):
        for account, sku in places:
            await database.write(report, account, "here", sku, 5, 10 * HOUR, "key")
    assert not await database.write(report, ACCOUNT, "there", SKU, 7, 12 * HOUR, "key")
    for account, skus in ((ACCOUNT, ["kms.keys", SKU]), (OTHER, [SKU])):
        found = await database.read(usage, account, 0, 100)
        assert [(each.sku, each.quantity) for each in found] == [(sku, 5) for sku in skus]


@on_both_databases
async def test_what_is_no_quantity_is_refused(database: Database) -> None:
    for quantity in (-1, MAX_QUANTITY + 1):
        with pytest.raises(ValueError, match=SKU):
            await database.write(report, ACCOUNT, "here", SKU, quantity, HOUR)
    await database.write(report, ACCOUNT, "here", SKU, 0, HOUR)
    assert await database.read(usage, ACCOUNT, 0, 100) == []


@on_both_databases
async def test_hours_and_keys_are_kept_for_25_months(database: Database) -> None:
    assert KEPT_HOURS * HOUR >= 25 * 31 * 24 * 3_600_000_000

    def told(tx: Connection) -> None:
        add(tx, {SkuUse(ACCOUNT, "here", SKU, hour): 1 for hour in (1, 2)})
        report(tx, ACCOUNT, "here", SKU, 1, 1 * HOUR, "early")
        report(tx, ACCOUNT, "here", SKU, 1, 2 * HOUR, "late")

    await database.write(told)
    now = (KEPT_HOURS + 1) * HOUR
    for forget in (forget_hours, forget_reports):
        assert await database.write(forget, now - 1) == 0
        assert await database.write(forget, now) == 1
        assert await database.write(forget, now) == 0
    assert not await database.write(report, ACCOUNT, "here", SKU, 1, 2 * HOUR, "late")
    found = await database.read(usage, ACCOUNT, 0, 100)
    assert [(each.hour, each.quantity) for each in found] == [(2, 2)]


@pytest.mark.parametrize(("name", "divisor"), [("storage", 1), ("a.B", 1), ("a.b", 0)])
def test_what_is_no_sku_is_refused(name: str, divisor: int) -> None:
    with pytest.raises(ValueError, match="no SKU"):
        Sku(name, "something", "thing", divisor)


def test_a_sku_is_of_the_service_that_it_names() -> None:
    assert Sku("registry.storage", "stored images", "GiB-month").service == "registry"
