"""Invoices: a month of use closed once, to the cent, with nothing lost and nothing billed twice."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import pytest
from sqlalchemy import select

from cloudcore.billing import closing
from cloudcore.billing.tables import billed_usage
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict
from tests.databases import on_both_databases
from tests.integration.billing_world import (
    DAY,
    FREE,
    HOUR,
    MESSAGES,
    PRICES,
    REQUESTS,
    STORAGE,
    World,
    moment,
    priced,
)
from tests.integration.served_world import Tenant
from tests.soak import IS_SOAK, times

SEED: Final = random.randrange(1 << 32) if IS_SOAK else 20261001
OCTOBER: Final = "2026-10-01T00:00:00.000000Z"
NOVEMBER: Final = "2026-11-01T00:00:00.000000Z"


async def accounts_of(world: World, tenant: Tenant) -> list[str]:
    """Add two accounts to the organization of a tenant; return the ids of all three."""
    ids = [tenant.account_id]
    for name in ("builds", "shop"):
        body = {"handle": f"{tenant.handle}-{name}", "organization": tenant.organization_id}
        answer = await world.served.ask("POST", "/v1/accounts", body, token=tenant.person_token)
        assert answer.status_code == 201, answer.text
        ids.append(answer.json()["account"]["id"])
    return ids


def lines_by_key(invoice: dict[str, Any]) -> dict[tuple[str, str, str], Decimal]:
    """Return the amounts of an invoice by account, SKU and month of use."""
    found = {
        (line["account"]["id"], line["sku"], line["month"]): Decimal(line["amount"])
        for line in invoice["lines"]
    }
    assert len(found) == len(invoice["lines"])
    return found


def rounded(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.01"), ROUND_HALF_UP)


@on_both_databases
async def test_a_month_of_use_is_what_an_independent_sum_says(billed: World) -> None:
    """Over several accounts and SKUs of two organizations, hour by hour."""
    chance = random.Random(SEED)
    tenants = {tenant.handle: tenant for tenant in (billed.acme, billed.served.globex)}
    used: dict[tuple[str, str, str], int] = defaultdict(int)
    costs = {
        (MESSAGES.name): lambda n: Decimal("0.105") * n / 1000,
        (REQUESTS.name): lambda n: Decimal("0.000004") * n,
        (STORAGE.name): lambda n: Decimal("0.0213") * n / (1 << 30) / 730,
    }
    for handle, tenant in tenants.items():
        for account_id in await accounts_of(billed, tenant):
            for hour in chance.sample(range(31 * 24), times(15)):
                at = moment(2026, 10) + hour * HOUR * MICROSECONDS + chance.randrange(1000)
                sku = chance.choice((STORAGE, MESSAGES, REQUESTS, FREE))
                quantity = chance.randrange(1, 1 << (45 if sku is STORAGE else 21))
                await billed.use(account_id, sku, quantity, at)
                used[handle, account_id, sku.name] += quantity
    # Of the months beside it: on the invoices of their own.
    await billed.use(billed.acme.account_id, MESSAGES, 999_000, moment(2026, 11))
    billed.at(2026, 11, 1, 1)
    await billed.close()
    assert await billed.invoices() == []  # two hours after its end
    billed.at(2026, 11, 1, 2)
    await billed.close()
    for handle, tenant in tenants.items():
        (invoice,) = await billed.invoices(tenant)
        expected = {
            (account_id, sku, OCTOBER): rounded(costs[sku](quantity))
            for (whose, account_id, sku), quantity in used.items()
            if whose == handle and sku in costs
        }
        assert len({sku for _, sku, _ in expected}) == 3
        assert lines_by_key(invoice) == expected
        assert Decimal(invoice["total"]) == sum(expected.values())
        assert (invoice["period_start"], invoice["period_end"]) == (OCTOBER, NOVEMBER)
        assert (invoice["currency"], invoice["status"]) == ("EUR", "open")
        assert invoice["organization"]["name"] == handle
        assert invoice["due_at"].startswith("2026-11-15T02:00:00")
        assert (invoice["attempts"], invoice["paid_at"]) == (0, None)


async def test_late_use_is_on_the_next_invoice_and_on_no_other(billed: World) -> None:
    """Reported after its month was closed; what is on an invoice never changes."""
    account = billed.acme.account_id
    await billed.use(account, MESSAGES, 10_000, moment(2026, 10, 5))
    billed.at(2026, 11, 1, 3)
    await billed.close()
    (first,) = await billed.invoices()
    await billed.use(account, MESSAGES, 2_000, moment(2026, 10, 31, 23))
    await billed.use(account, REQUESTS, 5_000_000, moment(2026, 10, 6))
    await billed.use(account, MESSAGES, 30_000, moment(2026, 11, 2))
    await billed.close()
    assert await billed.invoices() == [first]
    billed.at(2026, 12, 1, 3)
    await billed.close()
    billed.at(2027, 1, 1, 3)
    await billed.close()
    again, second = await billed.invoices()
    assert again == first
    assert lines_by_key(first) == {(account, MESSAGES.name, OCTOBER): Decimal("1.05")}
    assert lines_by_key(second) == {
        (account, MESSAGES.name, OCTOBER): Decimal("0.21"),
        (account, REQUESTS.name, OCTOBER): Decimal("20.00"),
        (account, MESSAGES.name, NOVEMBER): Decimal("3.15"),
    }
    assert second["period_start"] == NOVEMBER


async def totals(world: World) -> list[tuple[str, str]]:
    """Return month and total of each invoice."""
    return [(each["period_start"][:7], each["total"]) for each in await world.invoices()]


async def test_months_are_closed_in_turn_also_after_a_long_stop(billed: World) -> None:
    account = billed.acme.account_id
    billed.at(2026, 10, 1, 3)
    await billed.close()  # September, without use
    await billed.use(account, MESSAGES, 10_000, moment(2026, 10, 5))
    await billed.use(account, MESSAGES, 20_000, moment(2026, 12, 5))
    billed.at(2027, 1, 20)
    await billed.close()
    assert await totals(billed) == [("2026-10", "1.05"), ("2026-12", "2.10")]


async def test_months_are_closed_again_after_a_clock_that_was_ahead(billed: World) -> None:
    """What was billed meanwhile stays, and what is used after it is on the next invoice."""
    account = billed.acme.account_id
    await billed.use(account, MESSAGES, 10_000, moment(2026, 10, 5))
    billed.at(2027, 11, 20)
    await billed.close()
    billed.at(2026, 10, 20)
    await billed.use(account, MESSAGES, 20_000, moment(2026, 10, 20))
    await billed.close()
    assert [each["total"] for each in await billed.invoices()] == ["1.05"]
    billed.at(2026, 11, 1, 3)
    await billed.close()
    await billed.close()
    assert await totals(billed) == [("2026-10", "2.10"), ("2027-10", "1.05")]


@on_both_databases
async def test_processes_that_close_a_month_at_once_bill_it_once(billed: World) -> None:
    account = billed.acme.account_id
    for day in range(1, 20):
        await billed.use(account, MESSAGES, 1_000, moment(2026, 10, day))
        await billed.use(account, REQUESTS, 250_000, moment(2026, 10, day))
    billed.at(2026, 11, 1, 3)
    await asyncio.gather(*(billed.close() for _ in range(6)), return_exceptions=True)
    await billed.close()
    (invoice,) = await billed.invoices()
    assert invoice["total"] == "21.00"  # 19 times 0.105, rounded half up, and 19.00


@on_both_databases
async def test_a_closer_that_is_late_bills_nothing_twice(billed: World) -> None:
    """What it has read is compared when it writes: the month after was closed meanwhile."""
    account, needs = billed.acme.account_id, billed.needs
    organization_id = billed.acme.organization_id
    billed.at(2026, 12, 1, 3)
    october, november = moment(2026, 10), moment(2026, 11)
    costs, handles = closing.tariff(needs), {account: "acme"}
    await billed.use(account, MESSAGES, 1_000, moment(2026, 10, 3))
    owed = await closing._owed(needs, account, october)
    (seen,) = (each for each in owed if each.use.sku == MESSAGES.name)
    await closing.close_month(needs, november)  # another process, which is ahead
    with pytest.raises(Conflict):
        await needs.database.write(
            closing._issue, needs, organization_id, october, [seen], handles, costs
        )
    (invoice,) = await billed.invoices()
    assert lines_by_key(invoice) == {(account, MESSAGES.name, OCTOBER): Decimal("0.11")}


async def test_an_invoice_of_nothing_is_paid_at_once(billed: World) -> None:
    """And an organization without use has none."""
    await billed.use(billed.acme.account_id, REQUESTS, 1_000, moment(2026, 10, 3))
    billed.at(2026, 11, 1, 3)
    await billed.close()
    (invoice,) = await billed.invoices()
    assert (invoice["total"], invoice["status"]) == ("0.00", "paid")
    assert invoice["paid_at"] == invoice["created_at"]
    assert [line["amount"] for line in invoice["lines"]] == ["0.00"]
    assert await billed.invoices(billed.served.globex) == []


async def test_what_had_no_price_is_not_billed_when_it_gets_one(billed: World) -> None:
    account = billed.acme.account_id
    await billed.use(account, FREE, 1_000, moment(2026, 10, 3))
    billed.at(2026, 11, 1, 3)
    await billed.close()
    assert await billed.invoices() == []
    await billed.use(account, FREE, 10, moment(2026, 10, 3))
    billed.needs = replace(billed.needs, prices=priced({**PRICES, FREE: "1"}))
    billed.at(2026, 12, 1, 3)
    await billed.close()
    (invoice,) = await billed.invoices()
    assert invoice["total"] == "10.00"


async def test_each_currency_has_an_invoice(billed: World) -> None:
    account = billed.acme.account_id
    yen, euros = priced({REQUESTS: "0.7"}, "JPY")(), priced({MESSAGES: "0.105"})()
    billed.needs = replace(billed.needs, prices=lambda: [*euros, *yen])
    await billed.use(account, REQUESTS, 5, moment(2026, 10, 3))
    await billed.use(account, MESSAGES, 1_000, moment(2026, 10, 3))
    billed.at(2026, 11, 1, 3)
    await billed.close()
    found = sorted((each["currency"], each["total"]) for each in await billed.invoices())
    assert found == [("EUR", "0.11"), ("JPY", "4")]  # 3.5 yen, rounded half up


async def test_what_is_billed_is_what_was_used(billed: World) -> None:
    """Over random use, reports that are late and closings at any time: each unit on one line."""
    chance = random.Random(SEED)
    accounts = await accounts_of(billed, billed.acme)
    total: dict[str, int] = defaultdict(int)
    for month in (10, 11, 12):
        for _ in range(times(6)):
            billed.at(2026, month, chance.randrange(1, 28), chance.randrange(24))
            late = chance.randrange(60) * DAY * MICROSECONDS
            at = max(moment(2026, 10), billed.served.clock() - late)
            account, quantity = chance.choice(accounts), chance.randrange(1, 10_000)
            await billed.use(account, MESSAGES, quantity, at)
            total[account] += quantity
            await billed.close()
    billed.at(2027, 2, 1, 3)
    await billed.close()
    shown: dict[str, Decimal] = defaultdict(Decimal)
    for invoice in await billed.invoices():
        for line in invoice["lines"]:
            shown[line["account"]["id"]] += Decimal(line["quantity"])
    assert {name: value * 1000 for name, value in shown.items()} == dict(total)

    def recorded(tx: Connection) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        b = billed_usage.c
        for account, sku, quantity in tx.rows(Statement(select(b.account_id, b.sku, b.quantity))):
            found[account] += quantity if sku == MESSAGES.name else 0
        return {account: quantity for account, quantity in found.items() if quantity}

    assert await billed.served.database.read(recorded) == dict(total)


async def test_the_list_is_that_of_the_organization_and_by_state(billed: World) -> None:
    invoice = await billed.owing()
    answer = await billed.ask("GET", "/v1/invoices?status=open")
    (shown,) = answer.json()["invoices"]
    assert shown == {name: value for name, value in invoice.items() if name != "lines"}
    assert (await billed.ask("GET", "/v1/invoices?status=paid")).json()["invoices"] == []
    assert (await billed.ask("GET", "/v1/invoices?status=owed")).status_code == 400
