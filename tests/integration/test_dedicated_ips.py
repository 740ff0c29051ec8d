"""Dedicated IPs: who gets which address, and how much leaves from it on which day."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from cloudcore.db.base import Row
from cloudcore.db.statement import Statement
from cloudcore.email import dedicated_ips
from cloudcore.email.dedicated_ip import (
    CAPS,
    DAY,
    MOST_BOUNCED,
    PAUSED,
    WINDOW,
    DedicatedIP,
    room,
    with_outcome,
)
from cloudcore.email.messages.rows import Recipient
from cloudcore.email.warm_up import note_outcome, sources_of
from registry.settings.email import EmailSettings
from registry.settings.texts import SettingsError
from tests.databases import on_both_databases
from tests.integration.served_world import Served, Tenant, open_served

INVENTORY: Final = ("127.0.0.11", "127.0.0.12", "2001:db8::13")
PATH: Final = "/v1/dedicated-ips"
ABSENT: Final = "018f0000-0000-7000-8000-000000000000"


@dataclass
class World:
    """An install whose operator has three addresses."""

    served: Served

    def token(self, of: Tenant | None = None) -> str:
        return self.served.fresh_token(of)

    async def ask(
        self, method: str, path: str = "", body: object = None, of: Tenant | None = None
    ) -> httpx.Response:
        return await self.served.ask(method, f"{PATH}{path}", body, token=self.token(of))

    async def request(self, ip_pool: str | None = None, of: Tenant | None = None) -> dict[str, Any]:
        body = {} if ip_pool is None else {"ip_pool": ip_pool}
        made = await self.ask("POST", "", body, of)
        assert made.status_code == 201, made.text
        return dict(made.json()["dedicated_ip"])

    async def pool(self, name: str) -> dict[str, Any]:
        return dict(await self.served.make("/v1/ip-pools", {"name": name}, token=self.token()))

    async def show(self, made: dict[str, Any]) -> dict[str, Any]:
        return dict((await self.ask("GET", f"/{made['id']}")).json()["dedicated_ip"])

    async def sources(self, pool: dict[str, Any], count: int = 1) -> Sequence[str | None]:
        acme, region = self.served.acme.account_id, "local"
        now = self.served.clock()
        return await self.served.database.write(sources_of, acme, region, pool["id"], count, now)

    async def run(self, statement: str) -> None:
        await self.served.database.write(lambda tx: tx.execute(Statement(text(statement))))

    async def rows(self, statement: str) -> Sequence[Row]:
        return await self.served.database.read(lambda tx: tx.rows(Statement(text(statement))))

    async def outcome(self, made: dict[str, Any], status: str, *, was_sent: bool = False) -> None:
        to = Recipient(
            ABSENT, 0, self.served.acme.account_id, "local", "a@b.test", "a@b.test", "to",
            status, None, 1, None, made["address"], None,  # type: ignore[arg-type]
        )  # fmt: skip
        events, now = self.served.email.events, self.served.clock()
        await self.served.database.write(note_outcome, events, to, now, was_sent=was_sent)


@pytest.fixture
async def world(tmp_path: Path, metadata_url: str) -> AsyncIterator[World]:
    listed = EmailSettings(email_sending="direct", email_dedicated_ips=", ".join(INVENTORY))
    async with open_served(tmp_path / "data", metadata_url, email=listed) as served:
        world = World(served)
        await world.run("DELETE FROM dedicated_ips")  # those that each tenant is furnished with
        yield world


async def test_a_pool_is_named_by_id_crn_or_name_and_null_unassigns_it(world: World) -> None:
    """Empty or omitted is unassigned; unknown is 404, foreign 400; with nothing left it is 409."""
    pool, refused = await world.pool("outbound"), []
    assert (await world.request())["ip_pool"] is None
    empty = await world.request("")
    assert empty["ip_pool"] is None
    assert (empty["warmup_status"], empty["warmup_percentage"]) == ("new", 0)
    assert empty["warmup_started_at"] is None
    globex = world.served.globex.account_id
    for reference, status in (
        ("absent", 404),
        (ABSENT, 404),
        (f"crn:email:local:{globex}:ip-pool/outbound", 400),
        (f"crn:email:elsewhere:{world.served.acme.account_id}:ip-pool/outbound", 400),
        ("not a name", 400),
    ):
        answer = await world.ask("POST", "", {"ip_pool": reference})
        refused.append((reference, answer.status_code, status))
    assert [each for each in refused if each[1] != each[2]] == []
    named = []
    for reference in (pool["name"], pool["id"], pool["crn"]):
        last = await world.request(reference)
        named.append(last["ip_pool"])
        assert (await world.ask("DELETE", f"/{last['id']}")).status_code == 204
    assert named == [{"id": pool["id"], "crn": pool["crn"], "name": "outbound"}] * 3
    await world.request()
    answer = await world.ask("POST", "", {})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONFLICT")


async def test_an_address_goes_into_a_pool_and_out_of_it_and_holds_it(world: World) -> None:
    pool, made = await world.pool("outbound"), await world.request()
    path = f"/{made['id']}"
    moved = await world.ask("PATCH", path, {"ip_pool": "outbound"})
    assert moved.json()["dedicated_ip"]["ip_pool"]["id"] == pool["id"]
    held = await world.served.ask("DELETE", f"/v1/ip-pools/{pool['id']}", token=world.token())
    assert (held.status_code, held.json()["error"]["params"]["dedicated_ip"]) == (
        409,
        made["address"],
    )
    for none in ("", None):
        assert (await world.ask("PATCH", path, {"ip_pool": "outbound"})).status_code == 200
        freed = await world.ask("PATCH", path, {"ip_pool": none})
        assert freed.json()["dedicated_ip"]["ip_pool"] is None
    for fixed in ("address", "warmup_status", "warmup_percentage"):
        assert (await world.ask("PATCH", path, {fixed: made[fixed]})).status_code == 400
    gone = await world.served.ask("DELETE", f"/v1/ip-pools/{pool['id']}", token=world.token())
    assert gone.status_code == 204


@on_both_databases
async def test_of_sixteen_requests_at_once_each_gets_an_address_of_its_own_or_none(
    world: World,
) -> None:
    tenants = [world.served.acme, world.served.globex] * 8
    answers = await asyncio.gather(*(world.ask("POST", "", {}, each) for each in tenants))
    assert Counter(each.status_code for each in answers) == {201: 3, 409: 13}
    got = [each.json()["dedicated_ip"]["address"] for each in answers if each.status_code == 201]
    assert sorted(got) == sorted(INVENTORY)


async def test_what_waits_to_be_sent_from_an_address_holds_it(world: World) -> None:
    made = await world.request()
    await add_waiting(world, made["address"], "queued")
    answer = await world.ask("DELETE", f"/{made['id']}")
    assert (answer.status_code, answer.json()["error"]["params"]["reason"]) == (409, "in_use")
    await world.run("UPDATE email_recipients SET status = 'sent', next_attempt_at = NULL")
    assert (await world.ask("DELETE", f"/{made['id']}")).status_code == 204


async def test_the_cap_of_a_day_is_honoured_and_the_rest_leaves_from_the_shared_address(
    world: World,
) -> None:
    """What goes beyond it is not queued; the count is in the database, whoever counts."""
    pool = await world.pool("outbound")
    made = await world.request("outbound")
    for day, cap in enumerate(CAPS[:4]):
        got = [await world.sources(pool, 40) for _ in range(cap // 40 + 2)]
        flat = Counter(each for some in got for each in some)
        assert flat[made["address"]] == cap, day
        assert flat[None] == (cap // 40 + 2) * 40 - cap
        shown = await world.show(made)
        assert shown["warmup_status"] == "warming"
        assert shown["warmup_percentage"] == 100 * cap // CAPS[-1]
        world.served.clock.now += DAY
    world.served.clock.now += DAY * len(CAPS)
    shown = await world.show(made)
    assert (shown["warmup_status"], shown["warmup_percentage"]) == ("warmed", 100)
    assert set(await world.sources(pool, 300)) == {made["address"]}


@on_both_databases
async def test_sixteen_senders_at_once_do_not_exceed_the_cap_of_a_day(world: World) -> None:
    pool = await world.pool("outbound")
    made = [await world.request("outbound") for _ in range(2)]
    got = await asyncio.gather(*(world.sources(pool, 7) for _ in range(16)))
    flat = Counter(each for some in got for each in some)
    assert flat == {made[0]["address"]: CAPS[0], made[1]["address"]: CAPS[0], None: 12}


async def test_a_new_address_gets_its_share_beside_one_that_is_warmed(world: World) -> None:
    pool, old = await world.pool("outbound"), await world.request("outbound")
    await world.sources(pool)
    world.served.clock.now += DAY * (len(CAPS) + 1)
    new = await world.request("outbound")
    got = Counter(await world.sources(pool, 1000))
    assert got[new["address"]] >= 1
    assert got[old["address"]] > 900
    assert got[None] == 0


async def test_without_a_pool_or_an_address_in_it_mail_leaves_from_the_shared_one(
    world: World,
) -> None:
    pool = await world.pool("outbound")
    await world.request()
    assert await world.sources(pool, 2) == [None, None]
    acme, now = world.served.acme.account_id, world.served.clock()
    assert await world.served.database.write(sources_of, acme, "local", None, 1, now) == [None]


async def test_a_paused_address_sends_nothing_until_it_goes_on(world: World) -> None:
    pool, made = await world.pool("outbound"), await world.request("outbound")
    await world.sources(pool)
    started = (await world.show(made))["warmup_started_at"]
    seconds = datetime.fromisoformat(started).timestamp()
    assert seconds == pytest.approx(world.served.clock() / 1_000_000, abs=1)
    paused = await world.ask("POST", f"/{made['id']}/pause")
    assert paused.json()["dedicated_ip"]["warmup_status"] == "paused"
    assert await world.sources(pool) == [None]
    again = await world.ask("POST", f"/{made['id']}/pause")
    assert again.json() == paused.json()
    world.served.clock.now += DAY
    resumed = (await world.ask("POST", f"/{made['id']}/resume")).json()["dedicated_ip"]
    assert (resumed["warmup_status"], resumed["warmup_started_at"]) == ("warming", started)
    assert await world.sources(pool) == [made["address"]]


async def test_too_many_bounces_pause_an_address_and_its_owner_is_told(world: World) -> None:
    token = world.token()
    topic = await world.served.make("/v1/topics", {"name": "mail"}, token=token)
    rule = {"topic": topic["crn"], "event_types": [PAUSED]}
    await world.served.make("/v1/event-rules", rule, token=token)
    pool, made = await world.pool("outbound"), await world.request("outbound")
    await world.sources(pool)
    for _ in range(MOST_BOUNCED):
        await world.outcome(made, "bounced")
    assert (await world.show(made))["warmup_status"] == "warming"
    await world.outcome(made, "deferred")
    await world.outcome(made, "bounced")
    assert (await world.show(made))["warmup_status"] == "paused"
    told = await world.rows("SELECT type, payload FROM outbox")
    assert [made["crn"] in payload for kind, payload in told if kind == PAUSED] == [True]
    await world.ask("POST", f"/{made['id']}/resume")
    await world.outcome(made, "bounced")
    assert (await world.show(made))["warmup_status"] == "warming"


async def test_addresses_out_of_the_inventory_are_told_to_the_operator(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.request()
    await dedicated_ips.log_unlisted(world.served.email)
    assert "email_dedicated_ips" not in caplog.text
    await world.run("UPDATE dedicated_ips SET address = '192.0.2.9'")
    await dedicated_ips.log_unlisted(world.served.email)
    assert "accounts send from 192.0.2.9, which email_dedicated_ips does not list" in caplog.text


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(("sent", "bounced", "returned")), max_size=3 * WINDOW))
def test_the_last_thousand_outcomes_are_kept(outcomes: list[str]) -> None:
    """A bounce that comes back turns one that was taken; the oldest are forgotten."""
    of = DedicatedIP(
        id="", account_id="", region="", created_at=0, updated_at=0, address="192.0.2.1"
    )
    kept: list[bool] = []
    for each in outcomes:
        if each == "returned" and False in kept:
            at = len(kept) - 1 - kept[::-1].index(False)
            kept[at] = True
        else:
            kept = [*kept, each != "sent"][-WINDOW:]
        of = with_outcome(of, bounced=each != "sent", was_sent=each == "returned")
        bits = int.from_bytes(of.outcomes, "big")
        assert [bit == "1" for bit in f"{bits:b}"[1:]] == kept
        assert of.warmup_status == "new" or sum(kept) <= WINDOW
    assert len(of.outcomes) <= WINDOW // 8 + 1


def test_a_clock_that_goes_back_gives_no_more_room() -> None:
    of = DedicatedIP(
        id="", account_id="", region="", created_at=0, updated_at=0, address="192.0.2.1",
        warmup_started_at=5 * DAY, day=5, sent=CAPS[0],
    )  # fmt: skip
    assert (room(of, 5 * DAY + 1), room(of, 4 * DAY), room(of, 6 * DAY)) == (0, 0, CAPS[1])


@pytest.mark.parametrize("listed", ["no address", "0.0.0.0", "224.0.0.1", "fe80::1%eth0"])
def test_an_inventory_lists_addresses_that_can_be_sent_from(listed: str) -> None:
    with pytest.raises(SettingsError, match="email_dedicated_ips"):
        _ = EmailSettings(email_dedicated_ips=listed).dedicated_ips


def test_an_address_is_in_the_inventory_once() -> None:
    listed = EmailSettings(email_dedicated_ips=" 192.0.2.1,2001:DB8:0::1, 192.0.2.1,")
    assert listed.dedicated_ips == ("192.0.2.1", "2001:db8::1")


async def add_waiting(world: World, address: str, status: str) -> None:
    acme, now = world.served.acme.account_id, world.served.clock()
    await world.run(
        'INSERT INTO email_messages (id, account_id, region, sender, "to", cc, bcc, subject,'
        " status, identity, identity_id, created_at, updated_at)"
        f" VALUES ('{ABSENT}', '{acme}', 'local', 'a@b.test', '[]', '[]', '[]', 's', '{status}',"
        f" 'b.test', '{ABSENT}', {now}, {now})"
    )
    await world.run(
        "INSERT INTO email_recipients (message_id, position, account_id, region, address, folded,"
        " kind, status, attempts, source_ip, next_attempt_at)"
        f" VALUES ('{ABSENT}', 0, '{acme}', 'local', 'c@d.test', 'c@d.test', 'to', '{status}', 0,"
        f" '{address}', {now})"
    )
