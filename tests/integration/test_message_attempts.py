"""Attempts to send messages: to which server, by TLS, again or never, and who is suppressed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.email import identity_verification
from cloudcore.email.dedicated_ip import CAPS
from cloudcore.email.messages import delivery
from cloudcore.email.messages.submission import SEND
from cloudcore.email.needs import NOT_SENT
from cloudcore.email.warm_up import sources_of
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.outbound import mail_transfer
from cloudcore.wire import moment_of
from tests.certificates import self_signed
from tests.databases import on_both_databases
from tests.integration.sending_world import DAY, SendingWorld, open_world
from tests.jobs import run_due

ONE = "one.example.com"


@pytest.fixture
async def world(tmp_path: Path, metadata_url: str) -> AsyncIterator[SendingWorld]:
    """Return an install, beside the mail server of one.example.com."""
    async with open_world(tmp_path / "data", metadata_url) as made:
        await made.mail_server(ONE, "127.0.0.2")
        yield made


def moment(text: str) -> int:
    return moment_of(datetime.fromisoformat(text))


async def suppressed(world: SendingWorld, address: str) -> list[dict[str, Any]]:
    path = f"/v1/suppressions?address={address}"
    answer = await world.served.ask("GET", path, token=world.token())
    return list(answer.json()["suppressions"])


@on_both_databases
async def test_every_attempt_has_the_same_message_id(world: SendingWorld) -> None:
    server = world.servers[ONE]
    server.drops = True
    message = await world.sent(to=["bob@one.example.com"])
    await world.work()
    found = (await world.message(message))["recipients"][0]
    assert found["status"] == "deferred", "nobody knows whether it was taken"
    waits = moment(found["next_attempt_at"]) - moment(found["last_attempt_at"])
    assert waits == delivery.FIRST_RETRY_SECONDS * MICROSECONDS
    server.drops = False
    await world.work(after=60)
    first, second = world.deliveries
    assert first.mail["Message-ID"] == second.mail["Message-ID"]
    assert first.mail["Date"] == second.mail["Date"]
    assert (await world.message(message))["status"] == "sent"


async def test_a_refusal_for_now_is_tried_again_one_for_good_is_not(world: SendingWorld) -> None:
    server = world.servers[ONE]
    server.refusals = {
        "later@one.example.com": "451 4.7.1 Come back later",
        "none@one.example.com": "550 5.1.1 No such user",
    }
    message = await world.sent(
        to=["later@one.example.com", "none@one.example.com", "bob@one.example.com"]
    )
    await world.work()
    found = await world.message(message)
    later, none, bob = found["recipients"]
    assert found["status"] == "deferred"
    assert (later["status"], later["attempts"]) == ("deferred", 1)
    assert "451 4.7.1 Come back later" in later["reason"]
    assert (none["status"], bob["status"]) == ("bounced", "sent")
    assert "550 5.1.1 No such user" in none["reason"]
    assert "next_attempt_at" not in none
    (suppression,) = await suppressed(world, "none@one.example.com")
    assert suppression["source_message"]["id"] == message["id"]
    waits = []
    while later["status"] == "deferred":
        pause = moment(later["next_attempt_at"]) - moment(later["last_attempt_at"])
        waits.append(pause / MICROSECONDS)
        await world.work(after=waits[-1])
        (later, *_) = (await world.message(message))["recipients"]
    assert later["status"] == "bounced"
    assert later["reason"].startswith("given up: ")
    assert waits[:9] == [60.0 * 2**times for times in range(8)] + [delivery.LONGEST_RETRY_SECONDS]
    assert sum(waits) > 2 * DAY
    assert (await world.message(message))["status"] == "bounced"
    assert await suppressed(world, "later@one.example.com") == [], "nor what is given up"


async def test_a_refused_sender_or_content_suppresses_no_recipient(world: SendingWorld) -> None:
    server, bob = world.servers[ONE], "bob@one.example.com"
    for of_recipient, of_content in (
        ("550 5.1.8 Sender address rejected", ""),
        ("550 5.7.1 Relay access denied", ""),
        ("", "554 5.7.1 Looks like spam"),
    ):
        server.refusals = {bob: of_recipient} if of_recipient else {}
        server.refusal = of_content
        message = await world.sent(to=[bob])
        await world.work()
        found = await world.message(message)
        assert found["status"] == "bounced"
        assert (of_recipient or of_content) in found["recipients"][0]["reason"]
        assert await suppressed(world, bob) == []


async def test_where_mail_goes_follows_the_dns(world: SendingWorld) -> None:
    """RFC 5321 §5.1 and RFC 7505; an address that is not public is dialled if it is listed."""
    records = world.names.records
    records["null.example.com.", "MX"] = ["0 ."]
    records["bare.example.com.", "A"] = ["127.0.0.2"]
    records["second.example.com.", "MX"] = ["10 down.example.com.", "20 mx.one.example.com."]
    records["down.example.com.", "A"] = ["127.0.0.99"]
    records["inside.example.com.", "MX"] = ["10 db.inside.example.com."]
    records["db.inside.example.com.", "A"] = ["10.0.0.5"]
    names = ("null", "bare", "second", "inside", "nowhere")
    message = await world.sent(to=[f"bob@{name}.example.com" for name in names])
    await world.work()
    found = (await world.message(message))["recipients"]
    statuses = dict(zip(names, (each["status"] for each in found), strict=True))
    assert statuses == {
        "null": "bounced",
        "bare": "sent",
        "second": "sent",
        "inside": "bounced",
        "nowhere": "bounced",
    }
    reasons = dict(zip(names, (each.get("reason", "") for each in found), strict=True))
    assert "RFC 7505" in reasons["null"]
    assert "ENTREPOT_EMAIL_ALLOWED" in reasons["inside"]
    assert reasons["nowhere"] == "nowhere.example.com has no address"
    world.names.fails = True
    message = await world.sent(to=["bob@bare.example.com"])
    await world.work()
    assert (await world.message(message))["status"] == "deferred"


async def test_a_message_waits_for_the_dns_and_no_longer_than_an_attempt_for_servers(
    world: SendingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = await world.sent(to=["bob@one.example.com"])
    world.names.fails = True
    await world.work()
    assert (await world.message(message))["status"] == "deferred"
    world.names.fails = False
    monkeypatch.setattr(mail_transfer, "ATTEMPT_SECONDS", 0.3)
    may_answer = world.servers[ONE].held = asyncio.Event()
    await world.work(after=120)
    (recipient,) = (await world.message(message))["recipients"]
    assert (recipient["status"], recipient["attempts"]) == ("deferred", 2)
    assert recipient["reason"].startswith(f"the mail servers of {ONE} took more than ")
    may_answer.set()
    monkeypatch.undo()
    await world.work(after=600)
    assert (await world.message(message))["status"] == "sent"


async def test_one_slow_mail_server_holds_up_no_other(world: SendingWorld) -> None:
    slow = await world.mail_server("slow.example.com", "127.0.0.3")
    slow.held = asyncio.Event()
    most = delivery.MOST_OF_DESTINATION
    await world.sent(to=[f"bob{number}@slow.example.com" for number in range(2 * most)])
    await world.sent(to=["bob@one.example.com"])
    working = asyncio.create_task(world.work())
    while not world.deliveries or len(slow.waiting) < most:
        await asyncio.sleep(0)
        assert not working.done()
    assert [each.server for each in world.deliveries] == ["127.0.0.2"]
    assert len(slow.waiting) == most, "of one destination at once"
    slow.held.set()
    await working
    for _ in range(3):
        await world.work(after=5)
    assert len(world.deliveries) == 2 * most + 1


async def test_a_message_waits_while_its_identity_is_unverified(world: SendingWorld) -> None:
    more = await world.verified("more.example.com")
    message = await world.sent("x@more.example.com", to=["bob@one.example.com"])
    record = world.names.texts.pop(f"{more['dkim']['record_name']}.")
    assert (await world.ask("POST", f"/{more['id']}/verify")).status_code == 202
    checks = [identity_verification.WORK.job_kind(world.served.email)]
    await run_due(world.served.database, checks, world.served.clock)
    assert (await world.show(more))["status"] == "failed"
    await world.work()
    found = await world.message(message)
    assert (found["status"], world.deliveries) == ("deferred", [])
    world.names.texts[f"{more['dkim']['record_name']}."] = record
    assert (await world.ask("POST", f"/{more['id']}/verify")).status_code == 202
    await world.work()
    await world.work(after=120)
    assert (await world.message(message))["status"] == "sent"


@pytest.mark.parametrize("fault", ["no sender", "unexpected"])
async def test_a_message_waits_while_the_platform_cannot_send_it(
    world: SendingWorld, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    message = await world.sent(to=["bob@one.example.com"])
    email = world.served.email
    if fault == "no sender":
        monkeypatch.setattr(world.served, "email", replace(email, sending=NOT_SENT))
    else:
        monkeypatch.setattr(delivery, "composed", Mock(side_effect=RuntimeError))
    await world.work()
    found = await world.message(message)
    assert (found["status"], world.deliveries) == ("deferred", [])
    monkeypatch.undo()
    await world.work(after=120)
    assert (await world.message(message))["status"] == "sent"
    assert len(world.deliveries) == 1


async def test_a_message_whose_job_gave_up_has_bounced_and_suppresses_nobody(
    world: SendingWorld,
) -> None:
    message = await world.sent(to=["bob@one.example.com"])
    served = world.served
    (kind,) = (each for each in world.kinds if each.name == SEND)
    where = {"message_id": message["id"], "position": 0}
    job = Mock(account_id=served.acme.account_id, arguments=where)
    await served.database.write(kind.gave_up, job)
    found = await world.message(message)
    assert (found["status"], found["recipients"][0]["attempts"]) == ("bounced", 0)
    assert found["recipients"][0]["reason"] == "the platform failed at every attempt"
    await world.work()
    assert (world.deliveries, await suppressed(world, "bob@one.example.com")) == ([], [])


async def test_a_retry_on_another_day_counts_for_the_cap_of_that_day(
    tmp_path: Path, metadata_url: str
) -> None:
    inventory = "127.0.0.50, 127.0.0.51, 127.0.0.52"  # one for each tenant, and one more
    async with open_world(tmp_path / "data", metadata_url, dedicated_ips=inventory) as world:
        server = await world.mail_server(ONE, "127.0.0.2")
        served, token = world.served, world.token()
        pool = await served.make("/v1/ip-pools", {"name": "outbound"}, token=token)
        body = {"ip_pool": "outbound"}
        made = (await served.ask("POST", "/v1/dedicated-ips", body, token=token)).json()
        address = made["dedicated_ip"]["address"]
        (identity,) = (await world.ask("GET", "?value=acme.example.com")).json()["identities"]
        await world.ask("PATCH", f"/{identity['id']}", body)
        server.refusals["bob@one.example.com"] = "451 later"
        await world.sent(to=["bob@one.example.com"])
        await world.work()

        async def left(count: int) -> list[str | None]:
            """Count recipients for today's cap; return the sources that they get."""
            ids = served.acme.account_id, "local", pool["id"]
            return list(await served.database.write(sources_of, *ids, count, served.clock()))

        assert await left(CAPS[0]) == [address] * (CAPS[0] - 1) + [None]
        server.refusals.clear()
        await world.work(after=DAY)
        assert [each.peer for each in world.deliveries] == [address]
        assert await left(CAPS[1]) == [address] * (CAPS[1] - 1) + [None]


async def test_no_tenants_suppression_or_rate_touches_platform_mail(world: SendingWorld) -> None:
    body = {"address": "bob@one.example.com"}
    await world.served.ask("POST", "/v1/suppressions", body, token=world.token())
    world.begin_second()
    to = {"to": ["eve@one.example.com"]}
    codes = [(await world.send(to)).status_code for _ in range(11)]
    assert codes[-1] == 429
    world.served.clock.now -= world.served.clock.now % MICROSECONDS
    await world.identity("bob@one.example.com")
    topic = await world.served.make("/v1/topics", {"name": "news"}, token=world.token())
    hook = {"protocol": "email", "endpoint": "bob@one.example.com"}
    path = f"/v1/topics/{topic['id']}/subscriptions"
    await world.served.make(path, hook, token=world.token())
    await world.work()
    await run_due(
        world.served.database,
        list(NOTIFICATIONS.runtime.job_kinds(world.served.notifications)),
        world.served.clock,
    )
    ours = [each for each in world.deliveries if each.recipients == ["bob@one.example.com"]]
    assert [each.sender for each in ours] == ["platform@registry.test"] * 2
    assert {each.mail["From"] for each in ours} == {"platform@registry.test"}
    assert b"\n" not in b"".join(each.content.replace(b"\r\n", b"") for each in ours)


async def test_tls_is_used_if_it_is_offered_and_a_broken_offer_costs_no_message(
    world: SendingWorld, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path, "mx.tls.example.com")
    for domain, address, offer in (
        ("tls.example.com", "127.0.0.3", server_context(certificate, key)),
        ("broken.example.com", "127.0.0.4", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)),
    ):
        await world.mail_server(domain, address, tls=offer)
    message = await world.sent(to=["bob@tls.example.com", "bob@broken.example.com"])
    await world.work()
    assert (await world.message(message))["status"] == "sent"
    assert {each.recipients[0]: each.is_tls for each in world.deliveries} == {
        "bob@tls.example.com": True,
        "bob@broken.example.com": False,
    }


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
