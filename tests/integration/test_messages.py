"""Messages: what is accepted, who gets them, and what is recorded of each recipient."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any, Final

import dkim
import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.email.bounces.verp import read_return_path
from cloudcore.email.family import EMAIL
from cloudcore.email.messages import delivery, rows
from cloudcore.email.needs import NOT_SENT
from cloudcore.email.resources import MOST_RECIPIENTS
from cloudcore.wire import rfc3339
from tests.databases import on_both_databases
from tests.integration.console_shop import open_shop
from tests.integration.sending_world import (
    BOUNCES,
    DAY,
    HOST_NAME,
    SendingWorld,
    look_up,
    open_world,
)

ONE = "one.example.com"


@pytest.fixture
async def world(tmp_path: Path, metadata_url: str) -> AsyncIterator[SendingWorld]:
    """Return an install, beside the mail server of one.example.com."""
    async with open_world(tmp_path / "data", metadata_url) as made:
        await made.mail_server(ONE, "127.0.0.2")
        yield made


async def test_each_recipient_gets_a_signed_message_of_its_own(world: SendingWorld) -> None:
    await world.mail_server("two.example.com", "127.0.0.3")
    made = await world.sent(
        "Ada Lövelace <ada@acme.example.com>",
        to=["Bob <bob@one.example.com>", "eve@two.example.com"],
        bcc=["secret@one.example.com"],
        subject="Grüße",
        html="<p>Hallo</p>",
        headers={"X-Trace": "7", "List-Id": "<news.acme.example.com>"},
    )
    assert made["status"] == "queued"
    assert [each["status"] for each in made["recipients"]] == ["queued"] * 3
    await world.work()
    found = await world.message(made)
    assert found["status"] == "sent"
    assert [(each["status"], each["attempts"]) for each in found["recipients"]] == [("sent", 1)] * 3
    assert [each["kind"] for each in found["recipients"]] == ["to", "to", "bcc"]
    by_recipient = {each.recipients[0]: each for each in world.deliveries}
    assert {to: each.server for to, each in by_recipient.items()} == {
        "bob@one.example.com": "127.0.0.2",
        "eve@two.example.com": "127.0.0.3",
        "secret@one.example.com": "127.0.0.2",
    }
    key = world.served.email.return_key
    for position, each in enumerate(found["recipients"]):
        got = by_recipient[each["address"]]
        assert len(got.recipients) == 1, "a transaction of its own"
        assert got.greeted == HOST_NAME
        assert read_return_path(BOUNCES, key, got.sender) == (made["id"], position)
        assert b"secret" not in got.content, "nobody sees who gets it too"
        mail = got.mail
        assert mail["From"] == "Ada Lövelace <ada@acme.example.com>"
        assert mail["To"] == "Bob <bob@one.example.com>, eve@two.example.com"
        assert mail["Subject"] == "Grüße"
        assert mail["Message-ID"] == f"<{made['id']}@acme.example.com>"
        assert (mail["X-Trace"], mail["List-Id"]) == ("7", "<news.acme.example.com>")
        assert "List-Unsubscribe=One-Click" in mail["List-Unsubscribe-Post"]
        assert body_of(mail, "plain") == "Hello.\n"
        assert body_of(mail, "html") == "<p>Hallo</p>\n"
        assert dkim.verify(got.content, dnsfunc=partial(look_up, world))


@pytest.mark.parametrize(
    "name", ["ceo@bank.example, " + "x" * 70, "[(] " * 29 + "x", "Grüße, ceo@bank.example " * 8]
)
async def test_a_long_name_is_never_read_as_a_mailbox(world: SendingWorld, name: str) -> None:
    """The mail library would fold it without its quotes, and so add a sender."""
    sender, to = f'"{name}" <ada@acme.example.com>', f'"{name}" <bob@{ONE}>'
    await world.sent(sender, to=[to, f"eve@{ONE}"], cc=[to.replace("bob", "cy")])
    await world.work()
    mail = world.deliveries[0].mail
    for field, addresses in (
        ("From", ["ada@acme.example.com"]),
        ("To", [f"bob@{ONE}", f"eve@{ONE}"]),
        ("Cc", [f"cy@{ONE}"]),
    ):
        found = mail[field].addresses
        assert [each.addr_spec for each in found] == addresses
        # The library reads blanks between encoded words as part of the name.
        assert "".join(found[0].display_name.split()) == "".join(name.split())


def body_of(mail: EmailMessage, kind: str) -> str | None:
    found = mail.get_body((kind,))
    return None if found is None else found.get_content().replace("\r\n", "\n")


async def test_a_suppressed_recipient_is_dropped_and_the_others_go(world: SendingWorld) -> None:
    later = rfc3339(world.served.clock() + 60 * MICROSECONDS)
    for body in (
        {"address": "Never@One.example.com"},
        {"address": "over@one.example.com", "expires_at": later},
    ):
        made = await world.served.ask("POST", "/v1/suppressions", body, token=world.token())
        assert made.status_code == 201
    world.served.clock.advance(61)
    message = await world.sent(
        to=["never@one.example.com", "bob@one.example.com", "over@one.example.com"],
        cc=["NEVER@one.example.com"],
    )
    statuses = {each["address"]: each["status"] for each in message["recipients"]}
    assert statuses == {
        "never@one.example.com": "suppressed",
        "bob@one.example.com": "queued",
        "over@one.example.com": "queued",
    }, "an address that stands there twice is one; an expired suppression blocks nothing"
    await world.work()
    got = [each.recipients for each in world.deliveries]
    assert sorted(got) == [["bob@one.example.com"], ["over@one.example.com"]]
    found = await world.message(message)
    assert found["status"] == "sent"
    assert found["recipients"][0]["reason"] == "the address is suppressed"
    alone = await world.sent(to=["never@one.example.com"])
    assert alone["status"] == "suppressed"
    # So is one who is suppressed after the acceptance.
    message = await world.sent(to=["bob@one.example.com"])
    body = {"address": "bob@one.example.com"}
    await world.served.ask("POST", "/v1/suppressions", body, token=world.token())
    await world.work()
    assert len(world.deliveries) == len(got)
    found = await world.message(message)
    assert (found["status"], found["recipients"][0]["attempts"]) == ("suppressed", 0)


@on_both_databases
async def test_the_rate_is_per_account_identity_and_second(world: SendingWorld) -> None:
    await world.verified("more.example.com")
    await world.verified("acme.example.com", of=world.served.globex)
    to = {"to": ["bob@one.example.com"]}
    world.begin_second()
    asked = [world.send(to) for _ in range(12)]
    answers = await asyncio.gather(*asked)
    codes = sorted(each.status_code for each in answers)
    assert codes == [202] * 10 + [429] * 2
    refused = next(each for each in answers if each.status_code == 429)
    assert refused.json()["error"]["code"] == "EMAIL_RATE_LIMIT"
    names = {name.lower() for name in refused.headers}
    assert not {name for name in names if "ratelimit" in name or name == "retry-after"}
    other = await world.send({"from": "ada@more.example.com", **to})
    assert other.status_code == 202, "another identity has a rate of its own"
    theirs = await world.send(to, of=world.served.globex)
    assert theirs.status_code == 202, "another account too"
    assert (await world.send(to)).status_code == 429
    world.served.clock.advance(1)
    assert (await world.send(to)).status_code == 202


def test_no_limit_of_requests_is_described_for_the_rate(described: dict[str, Any]) -> None:
    told = described["paths"]["/v1/messages"]["post"]["responses"]["429"]["headers"]
    assert set(told) == {"X-Request-Id"}


async def test_no_encoded_word_is_decoded_and_half_of_an_own_link_to_unsubscribe_is_replaced(
    world: SendingWorld,
) -> None:
    word = "=?utf-8?q?a=0D=0ABcc:_eve@one.example.com?="
    half = {"List-unsubscribe-Post": "List-Unsubscribe=One-Click"}
    message = await world.sent(to=[f'"{word}" <bob@one.example.com>'], subject=word, headers=half)
    await world.work()
    assert (await world.message(message))["status"] == "sent"
    (got,) = world.deliveries
    head = got.content.partition(b"\r\n\r\n")[0]
    assert b"\r\nBcc" not in head
    assert "=0D=0ABcc:_eve@one.example.com" in got.mail["Subject"]
    assert got.mail.get_all("List-Unsubscribe-Post") == ["List-Unsubscribe=One-Click"]
    assert "/v1/email-unsubscriptions?token=" in got.mail["List-Unsubscribe"]


async def test_an_own_link_to_unsubscribe_stays_the_only_one(world: SendingWorld) -> None:
    own = {"List-Unsubscribe": "<https://acme.example.com/bye>"}
    await world.sent(to=["bob@one.example.com"], headers=own)
    await world.work()
    (got,) = world.deliveries
    assert got.mail.get_all("List-Unsubscribe") == list(own.values())
    assert got.mail["List-Unsubscribe-Post"] is None


async def test_a_template_is_rendered_at_the_acceptance(world: SendingWorld) -> None:
    body = {"name": "hi", "subject": "Hi {{ name }}", "html": "<p>{{ name }}</p>"}
    made = await world.served.ask("POST", "/v1/templates", body, token=world.token())
    template = made.json()["template"]
    bare: dict[str, Any] = {"subject": None, "text": None, "to": ["bob@one.example.com"]}
    for named in ("hi", template["id"], template["crn"]):
        message = await world.sent(**bare, template=named, variables={"name": "<Bob>"})
        assert message["template"] == {name: template[name] for name in ("id", "crn", "name")}
    missing = await world.send({**bare, "template": "hi"})
    assert missing.json()["error"]["params"]["variable"] == "name"
    both = await world.send({"to": ["bob@one.example.com"], "template": "hi"})
    assert both.json()["error"]["params"]["field"] == "subject"
    assert (await world.send({**bare, "template": "none"})).status_code == 404
    path = f"/v1/templates/{template['id']}"
    assert (await world.served.ask("DELETE", path, token=world.token())).status_code == 204
    await world.work()
    assert len(world.deliveries) == 3, "its deletion breaks nothing that was accepted"
    mail = world.deliveries[0].mail
    assert (mail["Subject"], body_of(mail, "html")) == ("Hi <Bob>", "<p>&lt;Bob&gt;</p>\n")
    found = await world.message(message)
    assert (found["subject"], found["variables"]) == ("Hi <Bob>", {"name": "<Bob>"})


@on_both_databases
async def test_a_repeated_idempotency_key_never_sends_twice(world: SendingWorld) -> None:
    body = {"to": ["bob@one.example.com"]}
    answers = await asyncio.gather(*(world.send(body, key="once") for _ in range(4)))
    assert {each.status_code for each in answers} <= {202, 409}
    await world.work()
    again = await world.send(body, key="once")
    assert again.status_code == 202
    await world.work()
    (got,) = world.deliveries
    assert got.mail["Message-ID"] == f"<{again.json()['message']['id']}@acme.example.com>"
    reused = await world.send({"to": ["eve@one.example.com"]}, key="once")
    assert (reused.status_code, reused.json()["error"]["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


@on_both_databases
async def test_the_list_is_filtered_and_shows_no_content(world: SendingWorld) -> None:
    more = await world.verified("more.example.com")
    first = await world.sent(to=["bob@one.example.com"])
    await world.work()
    second = await world.sent(
        "x@more.example.com", to=["eve@one.example.com"], cc=["Bob@one.example.com"]
    )
    for query, wanted in (
        ("status=sent", [first]),
        ("status=queued", [second]),
        ("recipient=BOB@one.example.com", [first, second]),
        ("recipient=eve@one.example.com", [second]),
        ("identity=acme.example.com", [first]),
        (f"identity={more['id']}", [second]),
        ("status=sent&identity=more.example.com", []),
    ):
        answer = (await world.get(f"?{query}")).json()
        assert [each["id"] for each in answer["messages"]] == [each["id"] for each in wanted]
        assert answer["meta"]["total"] == len(wanted), query
        for each in answer["messages"]:
            assert not {"text", "html", "recipients", "headers"} & each.keys()
    others = (await world.get("", of=world.served.globex)).json()["messages"]
    assert not {first["id"], second["id"]} & {each["id"] for each in others}
    theirs = await world.get(f"/{first['id']}", of=world.served.globex)
    assert theirs.status_code == 404


async def test_what_a_message_says_is_sealed_and_kept_for_a_week(world: SendingWorld) -> None:
    message = await world.sent(to=["bob@one.example.com"], text="a secret\n")
    of = (world.served.acme.account_id, message["id"])
    sealed = await world.served.database.read(rows.find_content, *of)
    assert sealed is not None
    assert b"secret" not in sealed
    assert (await world.message(message))["text"] == "a secret\n"
    world.served.clock.advance(40 * DAY)
    await forget(world)
    assert (await world.message(message))["text"] == "a secret\n", "it waits"
    await world.work()
    world.served.clock.advance(7 * DAY - 1)
    await forget(world)
    assert "text" in await world.message(message)
    world.served.clock.advance(1)
    await forget(world)
    assert "text" not in await world.message(message)
    world.served.clock.advance(23 * DAY)
    await forget(world)
    assert (await world.get(f"/{message['id']}")).status_code == 404


async def forget(world: SendingWorld) -> None:
    for each in EMAIL.runtime.expiry:
        await world.served.database.write(each, world.served.clock())


REFUSED: Final[tuple[tuple[dict[str, object], str, str], ...]] = (
    # A line break in what becomes a header, and what may become one.
    ({"subject": "a\r\nBcc: eve@example.com"}, "subject", "malformed"),
    ({"subject": "a\nb"}, "subject", "malformed"),
    ({"from": "Ada\r\nX: y <ada@acme.example.com>"}, "from", "malformed"),
    ({"to": ["bob@example.com\r\nBcc: eve@example.com"]}, "to[0]", "malformed"),
    ({"to": ["=?utf-8?q?x=0D=0ABcc=3A_a?=@example.com"]}, "to[0]", "malformed"),
    ({"to": [" " * 100_000]}, "to[0]", "malformed"),
    ({"from": f"{' ' * 100_000}<"}, "from", "malformed"),
    ({"cc": ["Bob\n <bob@example.com>"]}, "cc[0]", "malformed"),
    ({"headers": {"X-A": "b\r\nBcc: eve@example.com"}}, "headers.X-A", "malformed"),
    ({"headers": {"X-A\r\nBcc": "eve@example.com"}}, "headers", "malformed"),
    ({"headers": {"Bcc": "eve@example.com"}}, "headers", "not_allowed"),
    ({"headers": {"X-Entrepot-Id": "1"}}, "headers", "not_allowed"),
    ({"headers": {"X-A": "1", "x-a": "2"}}, "headers", "duplicate"),
    ({"headers": {"X-A": "=?utf-8?q?=0D=0ABcc:_eve@example.com?="}}, "headers.X-A", "malformed"),
    ({"to": []}, "to", "out_of_range"),
    ({"to": ["a@example.com"] * MOST_RECIPIENTS, "cc": ["b@example.com"]}, "to", "out_of_range"),
    ({"from": "ada@other.example.com"}, "from", "not_verified"),
    ({"from": "ada@sub.acme.example.com"}, "from", "not_verified"),
    ({"from": "ada"}, "from", "malformed"),
    ({"to": ["Bob bob@example.com"]}, "to[0]", "malformed"),
    ({"to": ["a@example.com, b@example.com"]}, "to[0]", "malformed"),
    ({"text": None}, "text", "missing"),
    ({"subject": None}, "subject", "missing"),
    ({"subject": "  "}, "subject", "out_of_range"),
    ({"variables": {"a": 1}}, "variables", "ambiguous"),
    ({"headers": {"Received": "x"}}, "headers", "not_allowed"),
    ({"headers": {"List-Foo": "x"}}, "headers", "not_allowed"),
    ({"headers": {f"X-{number}": "x" for number in range(21)}}, "headers", "too_many"),
)


async def test_what_cannot_be_sent_is_refused(world: SendingWorld) -> None:
    for body, field, reason in REFUSED:
        refused = await world.send({"to": ["bob@example.com"], **body})
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, "INVALID_INPUT"), (body, error)
        assert (error["params"]["field"], error["params"]["reason"]) == (field, reason), body


async def test_an_install_that_sends_no_mail_of_accounts_accepts_none(world: SendingWorld) -> None:
    served = world.served
    object.__setattr__(served.email, "sending", NOT_SENT)
    refused = await world.send({"to": ["bob@example.com"]})
    error = refused.json()["error"]
    assert (refused.status_code, error["params"]["reason"]) == (409, "not_available")


async def test_an_identity_stays_while_a_message_of_it_waits(world: SendingWorld) -> None:
    server = world.servers[ONE]
    server.refusals["bob@one.example.com"] = "451 later"
    more = await world.verified("more.example.com")
    message = await world.sent("x@more.example.com", to=["bob@one.example.com"])
    await world.sent(to=["bob@one.example.com"])  # of another identity
    for status in ("queued", "deferred"):
        assert (await world.message(message))["status"] == status
        refused = await world.ask("DELETE", f"/{more['id']}")
        error = refused.json()["error"]
        assert (refused.status_code, error["params"]["message_id"]) == (409, message["id"])
        await world.work()
    server.refusals.clear()
    await world.work(after=DAY)
    assert (await world.message(message))["status"] == "sent"
    assert (await world.ask("DELETE", f"/{more['id']}")).status_code == 204


@on_both_databases
async def test_of_a_message_and_its_identitys_deletion_one_wins(world: SendingWorld) -> None:
    for number in range(6):
        domain = f"d{number}.example.com"
        more = await world.verified(domain)
        sent, deleted = await asyncio.gather(
            # Each to another: one that has bounced is suppressed, and nothing waits for that.
            world.send({"from": f"x@{domain}", "to": [f"bob{number}@one.example.com"]}),
            world.ask("DELETE", f"/{more['id']}"),
        )
        assert (sent.status_code, deleted.status_code) in ((202, 409), (400, 204))


async def test_the_console_shows_what_became_of_each_recipient(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        listed = (await shop.browser.get("/console/services/messages?status=queued")).text
        made = shop.served.acme.ids["/v1/messages/{}"]
        assert f'href="/console/services/messages/{made}">Hello</a>' in listed
        none = (await shop.browser.get("/console/services/messages?status=sent")).text
        assert made not in none
        account_id, database = shop.served.acme.account_id, shop.served.database
        (to,) = await database.read(rows.list_recipients, account_id, made)
        refused = delivery.DeliveryOutcome("550 <b>no</b>")
        now = shop.served.clock()
        await database.write(delivery.record, shop.served.email, to, refused, None, now)
        page = (await shop.browser.get(f"/console/services/messages/{made}")).text
        assert "<h1>Hello</h1>" in page
        for words in ("bob@example.com", "bounced", "550 &lt;b&gt;no&lt;/b&gt;", "Hello."):
            assert words in page
