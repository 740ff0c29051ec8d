"""What is used is counted where it happens, and told by ``GET /v1/usage``."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cloudcore.db.base import Connection
from cloudcore.metering.routes import quantity_text
from cloudcore.metering.sku import BYTE_HOURS_PER_GIB_MONTH, Sku
from cloudcore.metering.usage import HOUR, KEPT_HOURS, SkuUse, add, forget_hours, report
from cloudcore.wire import rfc3339
from registry.services.resource_kinds import PULLS, STORAGE, TRANSFER
from tests.databases import on_both_databases
from tests.integration.notifications_world import World as Notified
from tests.integration.pushing import World
from tests.integration.s3_client import HOST, client_of
from tests.integration.served_world import Served, Tenant, open_served
from tests.used_hours import usage
from tests.webhook_receiver import status

DAY = 24 * HOUR


async def forget_use(served: Served) -> None:
    """Forget what it took to make the tenants."""
    served.meter.take()
    await served.database.write(forget_hours, served.clock() + (KEPT_HOURS + 1) * HOUR)


@pytest.fixture
async def shop(tmp_path: Path, metadata_url: str) -> AsyncIterator[Served]:
    async with open_served(tmp_path / "data", metadata_url, s3_host=HOST) as served:
        await forget_use(served)
        yield served


async def counted(served: Served, tenant: Tenant) -> dict[str, int]:
    """Return what a tenant has used until now, by SKU."""
    await served.database.write(add, served.meter.take())
    sums: Counter[str] = Counter()
    for each in await served.database.read(usage, tenant.account_id, 0, 1 << 30):
        sums[each.sku] += each.quantity
    return dict(sums)


async def listed(served: Served, query: str = "", token: str = "") -> list[dict[str, Any]]:
    token = token or served.acme.program_token
    answer = await served.ask("GET", f"/v1/usage?{query}", token=token)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["usage"]
    return found


async def test_a_request_counts_for_the_family_that_answers_it(shop: Served) -> None:
    """What is refused or public costs nothing."""
    token, other = shop.acme.program_token, shop.globex.program_token
    for path in ("/v1/queues", "/v1/queues", "/v1/keys", "/v1/repositories", "/v1/buckets"):
        assert (await shop.ask("GET", path, token=token)).status_code == 200
    assert (await shop.ask("GET", "/v1/queues", token=other)).status_code == 200
    foreign = shop.globex.ids["/v1/queues/{}"]
    for path, sent, expected in (
        ("/v1/queues", "", 401),
        (f"/v1/queues/{foreign}", token, 404),
        ("/v1/queues?limit=0", token, 400),
        ("/v1/prices", token, 200),
        ("/healthz", "", 200),
        ("/v1/users/me", shop.acme.person_token, 200),  # a person is in no account
    ):
        assert (await shop.ask("GET", path, token=sent)).status_code == expected, path
    assert await counted(shop, shop.acme) == {
        "queue.requests": 2,
        "kms.requests": 1,
        "api.requests": 1,
        "storage.requests": 1,
    }
    assert await counted(shop, shop.globex) == {"queue.requests": 1}


async def test_objects_count_as_the_bytes_that_clients_get_of_them(shop: Served) -> None:
    s3 = client_of(shop, shop.acme)
    await s3.done("PUT", "/bucket")
    await s3.done("PUT", "/bucket/key", b"0123456789")
    assert (await s3.ask("GET", "/bucket/key")).content == b"0123456789"
    assert (await s3.ask("GET", "/bucket/key", range="bytes=2-4")).content == b"234"
    assert (await s3.ask("HEAD", "/bucket/key")).status_code == 200
    assert (await s3.ask("PUT", "/bucket/copy", x_amz_copy_source="/bucket/key")).status_code == 200
    path = "/v1/buckets/bucket/objects/key"
    answer = await shop.ask("GET", path, token=shop.acme.program_token)
    assert answer.content == b"0123456789"
    assert (await s3.ask("GET", "/bucket/absent")).status_code == 404
    assert await counted(shop, shop.acme) == {
        "storage.requests": 7,
        "storage.transfer": 10 + 3 + 10,
    }
    assert await counted(shop, shop.globex) == {}


@on_both_databases
async def test_pulls_count_for_the_account_of_the_repository(world: World) -> None:
    log, database = world.install.ctx.pulls, world.install.database
    hour = world.install.clock() // HOUR
    image = await world.push_image("a layer", "v1")
    blob = await world.push_blob(b"0123456789")
    await log.flush()
    assert await database.read(usage, world.account.id, 0, 1 << 30, [TRANSFER.name]) == []

    async def pull(times: int) -> None:
        for _ in range(times):
            assert await world.pulls("v1")
            answer = await world.docker.get(f"/v2/{world.name}/blobs/{blob['digest']}")
            assert len(answer.content) == 10

    await pull(2)
    part = {"range": "bytes=0-3"}
    answer = await world.docker.get(f"/v2/{world.name}/blobs/{blob['digest']}", headers=part)
    assert answer.status_code == 206
    await log.flush()
    await log.flush()
    await pull(1)
    await log.flush()
    found = await database.read(usage, world.account.id, 0, 1 << 30, [TRANSFER.name, PULLS.name])
    assert [(each.sku, each.hour, each.quantity) for each in found] == [
        (PULLS.name, hour, 3),
        (TRANSFER.name, hour, 34),
    ]
    assert image["size"] > 0


async def test_a_message_that_an_endpoint_takes_counts_with_its_delivery(
    notified: Notified,
) -> None:
    """A failed attempt and a request to confirm cost nothing."""

    async def deliveries() -> int:
        account = notified.acme.account_id
        database = notified.served.database
        found = await database.read(usage, account, 0, 1 << 30, ["notifications.deliveries"])
        return sum(each.quantity for each in found)

    topic = await notified.topic()
    await notified.confirmed(topic)
    assert await deliveries() == 0
    taken = notified.hook.answer
    notified.hook.answer = lambda _got: status(500)
    await notified.publish(topic)
    await notified.deliver()
    assert await deliveries() == 0
    notified.hook.answer = taken
    notified.served.clock.advance(3600)
    await notified.deliver()
    assert await deliveries() == 1
    for _ in range(3):
        await notified.publish(topic)
    await notified.deliver()
    assert await deliveries() == 4


@on_both_databases
async def test_usage_is_listed_by_day_or_hour_and_sku(shop: Served) -> None:
    account, token = shop.acme.account_id, shop.acme.program_token
    day = shop.clock() // DAY * 24 - 48

    def use(tx: Connection) -> None:
        add(
            tx,
            {
                SkuUse(account, "local", "queue.requests", day): 500,
                SkuUse(account, "local", "queue.requests", day + 1): 1000,
                SkuUse(account, "local", "queue.requests", day + 24): 1,
                SkuUse(account, "local", STORAGE.name, day + 1): BYTE_HOURS_PER_GIB_MONTH // 4,
                SkuUse(shop.globex.account_id, "local", "queue.requests", day): 77,
            },
        )

    await shop.database.write(use)
    rows = await listed(shop)
    crn = f"crn:iam::{account}:account/acme"
    assert rows[0] == {
        "from": rfc3339(day * HOUR),
        "to": rfc3339((day + 24) * HOUR),
        "account": {"id": account, "crn": crn, "name": "acme"},
        "sku": "queue.requests",
        "quantity": "1.5",
        "unit": "1000 requests",
    }
    assert [(each["sku"], each["quantity"]) for each in rows] == [
        ("queue.requests", "1.5"),
        ("registry.storage", "0.25"),
        ("queue.requests", "0.001"),
    ]
    hourly = await listed(shop, f"granularity=hour&sku=queue.requests&from={rfc3339(day * HOUR)}")
    assert [(each["from"], each["quantity"]) for each in hourly] == [
        (rfc3339(day * HOUR), "0.5"),
        (rfc3339((day + 1) * HOUR), "1"),
        (rfc3339((day + 24) * HOUR), "0.001"),
    ]
    assert hourly[0]["to"] == rfc3339((day + 1) * HOUR)
    # The span is widened to whole hours, and a later moment is not in it.
    span = f"from={rfc3339(day * HOUR + 5)}&to={rfc3339((day + 1) * HOUR)}&granularity=hour"
    assert [each["quantity"] for each in await listed(shop, span)] == ["0.5"]
    pages, marker = [], ""
    while True:
        query = f"granularity=hour&limit=1&from={rfc3339(day * HOUR)}{marker}"
        answer = (await shop.ask("GET", f"/v1/usage?{query}", token=token)).json()
        pages += answer["usage"]
        assert answer["meta"]["total"] == 4
        if not answer["meta"]["has_more"]:
            break
        marker = f"&marker={answer['meta']['marker']}"
    assert pages == await listed(shop, f"granularity=hour&from={rfc3339(day * HOUR)}")
    assert len(pages) == 4


async def test_who_owns_or_pays_for_an_organization_lists_all_its_accounts(shop: Served) -> None:
    acme, globex = shop.acme, shop.globex
    now = shop.clock()
    for account_id in (acme.account_id, globex.account_id):
        await shop.database.write(report, account_id, "local", "queue.requests", 3000, now)
    query = f"organization_id={acme.organization_id}"
    rows = await listed(shop, query, acme.person_token)
    assert [(each["account"]["name"], each["quantity"]) for each in rows] == [("acme", "3")]
    member, token = await shop.add_person("member")
    await shop.join(acme.organization_id, member.email, token, by=acme.person_token)
    payer, paying = await shop.add_person("payer")
    await shop.join(acme.organization_id, payer.email, paying, by=acme.person_token, role="billing")
    assert await listed(shop, query, paying) == rows
    for asker, expected in (
        (globex.person_token, 404),
        (token, 403),
        (acme.program_token, 403),
    ):
        answer = await shop.ask("GET", f"/v1/usage?{query}", token=asker)
        assert answer.status_code == expected, (expected, answer.text)
    assert (await shop.ask("GET", "/v1/usage", token=acme.person_token)).status_code == 403


async def test_any_span_is_answered_and_what_is_no_selection_is_refused(shop: Served) -> None:
    first = shop.clock() - (KEPT_HOURS - 1) * HOUR
    await shop.database.write(report, shop.acme.account_id, "local", "kms.requests", 9, first)
    for span in (
        "from=0001-01-01T00:00:00Z",
        "from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59-23:59&granularity=hour",
        f"from={rfc3339(first)}&to=9999-12-31T23:59:59Z",
    ):
        rows = await listed(shop, f"sku=kms.requests&{span}")
        assert [each["quantity"] for each in rows] == ["0.009"], span
    for query, field in (
        ("sku=nothing.here", "sku"),
        ("granularity=month", "granularity"),
        ("from=yesterday", "from"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z", "from"),
        ("from=9999-12-31T23:59:59Z", "from"),
        ("from=2026-01-03T00:00:00Z&to=2026-01-02T00:00:00Z", "from"),
        ("organization_id=x", "organization_id"),
    ):
        answer = await shop.ask("GET", f"/v1/usage?{query}", token=shop.acme.program_token)
        assert answer.status_code == 400, query
        assert answer.json()["error"]["params"]["field"] == field, query


def test_quantities_are_decimal_numbers_of_the_priced_unit() -> None:
    sku = Sku("a.storage", "Stored", "GiB-month", BYTE_HOURS_PER_GIB_MONTH)
    assert quantity_text(0, sku) == "0"
    assert quantity_text(BYTE_HOURS_PER_GIB_MONTH * 12, sku) == "12"
    assert quantity_text(1, sku) == "0.000000000001"
    assert quantity_text(1 << 62, sku) == str(
        round(Decimal(1 << 62) / BYTE_HOURS_PER_GIB_MONTH, 12)
    ).rstrip("0")
    assert quantity_text(100, None) == "100"
