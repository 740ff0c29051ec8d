"""What comes back of a message suppresses whom it must, once, and nobody else."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from unittest.mock import AsyncMock

import pytest

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.email.bounces import mail_server
from cloudcore.email.bounces.verp import return_path
from cloudcore.errors import Unavailable
from cloudcore.events import Events
from cloudcore.quotas.limits import put_limit
from tests.databases import on_both_databases
from tests.integration.return_mail_world import DOMAIN, World, returning, vector
from tests.integration.served_world import Served
from tests.recount import querying

REFUSED = ("bounced", "550 5.1.1 no such user here")
SENT = ("sent", None)
NOTED = (250, "2.0.0 Noted")
DROPPED = (250, "2.0.0 Nothing to note")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Return the event loop of the server: its transports are of other classes than asyncio's."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def world(served: Served) -> AsyncIterator[World]:
    """Return a message that was sent, and where its reports go."""
    async with returning(served) as made:
        yield made


async def test_a_hard_bounce_suppresses_and_links_the_message(world: World) -> None:
    assert await world.hand_over(vector("postfix_refused")) == NOTED
    assert await world.recipients() == [REFUSED, SENT]
    message = await world.message()
    assert message["status"] == "bounced"
    (made,) = await world.suppressions("auto_bounce")
    assert made["address"] == "gone@mx.test"
    assert made["source_message"] == {"id": world.message_id, "crn": message["crn"]}
    assert "expires_at" not in made


@on_both_databases
async def test_a_duplicate_report_makes_no_further_suppression(world: World) -> None:
    said = vector("postfix_refused")
    answers = await asyncio.gather(*(world.hand_over(said) for _ in range(4)))
    assert sorted(answers) == sorted([NOTED, *[DROPPED] * 3])
    (made,) = await world.suppressions()
    path, token = f"/v1/suppressions/{made['id']}", world.served.acme.program_token
    assert (await world.served.ask("DELETE", path, token=token)).status_code == 204
    assert await world.hand_over(said) == DROPPED
    assert await world.suppressions() == []


async def test_a_soft_bounce_suppresses_nobody(world: World) -> None:
    assert await world.hand_over(vector("postfix_expired")) == NOTED
    assert await world.recipients() == [("bounced", "452 4.2.2 mailbox full"), SENT]
    assert await world.suppressions() == []


async def test_a_delay_at_another_server_sends_nothing_again(world: World) -> None:
    assert await world.hand_over(vector("postfix_delayed")) == NOTED
    assert await world.recipients() == [("sent", "452 4.2.2 mailbox full"), SENT]
    assert await world.hand_over(vector("postfix_delayed")) == DROPPED
    assert await world.suppressions() == []
    assert await world.hand_over(vector("postfix_refused")) == NOTED
    assert len(await world.suppressions()) == 1


async def test_a_report_that_comes_before_the_end_of_the_attempt_counts(world: World) -> None:
    await world.set_status("queued")
    assert await world.hand_over(vector("postfix_refused")) == NOTED
    assert (await world.recipients())[0] == REFUSED


async def test_a_forged_report_suppresses_nobody(world: World) -> None:
    said = vector("postfix_refused")
    ours = world.return_path()
    forged = (
        return_path(DOMAIN, bytes(32), world.message_id, 0),
        ours[:-20] + ("b" if ours[-20] == "a" else "a") + ours[-19:],
        ours.replace(DOMAIN, "mx.test"),
        f"postmaster@{DOMAIN}",
    )
    for address in forged:
        assert (await world.hand_over(said, to=address))[0] == 550
    # From anybody but the null sender, to the right address, or to that of complaints.
    assert (await world.hand_over(said, sender="mailer-daemon@mx.test"))[0] == 550
    quoted = said.replace(b"Return-Path: <", f"Return-Path: <{ours}> <".encode())
    assert (await world.hand_over(quoted, to=f"complaints@{DOMAIN}"))[0] == 550
    assert await world.recipients() == [SENT, SENT]
    assert await world.suppressions() == []


@pytest.mark.parametrize("to", ["", f"Complaints@{DOMAIN}"])
async def test_a_complaint_suppresses_the_address_that_it_came_from(world: World, to: str) -> None:
    said = vector("arf_abuse").replace(b"RETURN-PATH", world.return_path(1).upper().encode())
    to = to or world.return_path(1)
    assert await world.hand_over(said, to=to, sender="feedback@example.com") == NOTED
    assert await world.recipients() == [SENT, ("complained", "abuse")]
    assert (await world.message())["status"] == "complained"
    (made,) = await world.suppressions("auto_complaint")
    assert (made["address"], made["source_message"]["id"]) == ("Ada@mx.test", world.message_id)
    assert await world.hand_over(said, to=to, sender="feedback@example.com") == DROPPED
    assert len(await world.suppressions()) == 1


async def test_a_complaint_of_nobodys_message_suppresses_nobody(world: World) -> None:
    forged = return_path(DOMAIN, bytes(32), world.message_id, 1).encode()
    for said in (vector("arf_abuse"), vector("arf_abuse").replace(b"RETURN-PATH", forged)):
        assert await world.hand_over(said, to=f"complaints@{DOMAIN}") == DROPPED
    unwanted = vector("arf_not_spam").replace(b"RETURN-PATH", world.return_path().encode())
    assert await world.hand_over(unwanted, to=f"complaints@{DOMAIN}") == DROPPED
    assert await world.suppressions() == []


async def test_a_report_of_a_message_that_is_no_longer_kept_is_dropped(world: World) -> None:
    for message_id, position in ((uuid7(), 0), (world.message_id, 9)):
        to = world.needs.return_path(message_id, position)
        assert await world.hand_over(vector("postfix_refused"), to=to) == DROPPED
    assert await world.suppressions() == []


async def test_the_platform_suppresses_whatever_the_quota(world: World) -> None:
    account_id, token = world.served.acme.account_id, world.served.acme.program_token
    await world.served.database.write(put_limit, account_id, "suppressions", 0, 1)
    by_hand = {"address": "one-more@example.com"}
    refused = await world.served.ask("POST", "/v1/suppressions", by_hand, token=token)
    assert refused.json()["error"]["code"] == "QUOTA_EXCEEDED"
    assert await world.hand_over(vector("postfix_refused")) == NOTED
    assert len(await world.suppressions()) == 1


@on_both_databases
async def test_only_an_expired_suppression_is_replaced(world: World) -> None:
    made = await world.suppress("GONE@mx.test", world.served.clock() + MICROSECONDS)
    await world.hand_over(vector("postfix_refused"))
    assert await world.suppressions() == []
    await world.suppress("ada@mx.test", world.served.clock())
    said = vector("postfix_refused").replace(b"gone@", b"ada@")
    assert await world.hand_over(said, to=world.return_path(1)) == NOTED
    (replaced,) = await world.suppressions()
    assert replaced["address"] == "Ada@mx.test"
    assert replaced["id"] != made


@pytest.mark.parametrize(
    ("fault", "errors"), [(Unavailable("the database does not answer"), 0), (RuntimeError(), 1)]
)
async def test_mail_is_taken_again_once_it_can_be_noted(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
    errors: int,
) -> None:
    """A fault of the server's own is logged."""
    monkeypatch.setattr(world.served.database, "read", AsyncMock(side_effect=fault))
    assert (await world.hand_over(vector("postfix_refused")))[0] == 451
    assert len([each for each in caplog.records if each.levelno >= logging.ERROR]) == errors
    monkeypatch.undo()
    assert await world.hand_over(vector("postfix_refused")) == NOTED


async def talk(port: int, *lines: bytes) -> bytes:
    """Write lines to the server as they are, and read all that it answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\r\n".join(lines))
    answered = await reader.read()
    writer.close()
    return answered


async def test_nothing_that_is_malformed_fails_the_server(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    ours = world.return_path().encode()
    start = (b"EHLO mx.test", b"MAIL FROM:<>", b"RCPT TO:<%b>" % ours)
    odd = (
        *(b"MAIL", b"MAIL FROM:", b"MAIL FROM:<\xff>", b"RCPT TO:<", b"RCPT TO:<(>"),
        *(b'RCPT TO:<"@', b"RCPT TO:<@,,:;>", b"DATA x", b"AUTH PLAIN AAAA", b"VRFY x"),
        *(b"HELP", b"STARTTLS", b"", b"MAIL FROM:<", b"MAIL FROM:<@[ x"),
        *(b"\0\0", b"x" * 5000, b"MAIL FROM:<> SIZE=99999999999", b"BDAT 1 LAST"),
    )
    for line in odd:
        answered = await talk(world.port, *start[:2], line, b"QUIT", b"")
        assert answered.rstrip().rpartition(b"\r\n")[2].startswith(b"221")
        assert b"Error: (" not in answered  # what aiosmtpd says of an exception of its own
    for data in (b"\0\xff", b"Content-Type: multipart/report", b": :\r\n\r\n", b"x" * 100_000):
        mail = (*start, b"DATA", data, b".", b"QUIT", b"")
        assert b"250 2.0.0 Nothing to note" in await talk(world.port, *mail)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
    assert await world.hand_over(vector("postfix_refused")) == NOTED


async def test_neither_a_doubled_dot_nor_a_bare_line_feed_ends_a_mail(world: World) -> None:
    ours = world.return_path().encode()
    lines = vector("postfix_refused").replace(b"\n", b"\r\n").split(b"\r\n")
    said = [b"X-First: 1", b"X-Dot: a\n.", b"..", *lines[2:]]
    mail = (b"EHLO mx.test", b"MAIL FROM:<>", b"RCPT TO:<%b>" % ours, b"DATA", *said)
    answered = await talk(world.port, *mail, b".", b"QUIT", b"")
    assert answered.count(b"\r\n250 2.0.0 ") == 1
    assert b"221" in answered


async def test_one_recipient_is_taken_at_a_time(world: World) -> None:
    both = [world.return_path(position).encode() for position in (0, 1)]
    to = [b"RCPT TO:<%b>" % each for each in both]
    mail = (b"EHLO mx.test", b"MAIL FROM:<>", *to, b"DATA")
    data = vector("postfix_refused").replace(b"\n", b"\r\n")
    answered = await talk(world.port, *mail, data, b".", b"QUIT", b"")
    assert b"452 4.5.3 One recipient at a time" in answered
    assert await world.recipients() == [REFUSED, SENT]


async def test_a_large_report_is_taken_and_a_huge_one_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = vector("postfix_refused").replace(b"\n", b"\r\n")
    assert await world.hand_over(said + b"x" * 900 * 1024) == NOTED
    monkeypatch.setattr(mail_server, "MOST_MAIL_BYTES", 400_000)
    start = (b"EHLO mx.test", b"MAIL FROM:<>", b"RCPT TO:<%b>" % world.return_path(1).encode())
    for much in ((b"x" * 900 + b"\r\n") * 500, b"x" * 450_000):
        answered = await talk(world.port, *start, b"DATA", said + much, b".", b"QUIT", b"")
        assert b"552 5.3.4" in answered
    assert await world.recipients() == [REFUSED, SENT]


async def test_a_source_has_some_connections_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = [
        await asyncio.open_connection("127.0.0.1", world.port)
        for _ in range(mail_server.MOST_OF_ONE)
    ]
    greetings = [await reader.readline() for reader, _ in opened]
    assert {each[:4] for each in greetings} == {b"220 "}
    assert (await talk(world.port, b"")).startswith(b"421 4.7.0 ")
    _, first = opened[0]
    first.write(b"QUIT\r\n")
    assert await opened[0][0].read() == b"221 Bye\r\n"
    assert (await talk(world.port, b"QUIT", b"")).startswith(b"220 ")
    monkeypatch.setattr(mail_server, "MOST_CONNECTIONS", mail_server.MOST_OF_ONE - 1)
    assert (await talk(world.port, b"")).startswith(b"421 4.7.0 ")
    for _, writer in opened:
        writer.close()


@pytest.mark.parametrize("limit", ["IDLE_SECONDS", "LIFE_SECONDS"])
async def test_a_connection_ends_that_says_nothing_or_lasts(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(mail_server, limit, 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    assert (await reader.readline()).startswith(b"220 ")
    with pytest.raises((ConnectionError, EOFError)):
        await reader.readexactly(1)
    writer.close()


async def test_an_event_tells_of_a_suppression_that_mail_made(
    served: Served, metadata_url: str
) -> None:
    asked: list[str] = []

    def topics_of(_tx: object, _account_id: str, event_type: str) -> list[str]:
        asked.append(event_type)
        return ["crn:notifications:local:1:topic/t"]

    async with returning(served, events=Events(topics_of)) as world:
        await world.hand_over(vector("postfix_refused"))
        (made,) = await world.suppressions()
    with querying(metadata_url) as query:
        ((told,),) = query("SELECT payload FROM outbox WHERE type = 'email.suppression.created'")
    assert asked == ["email.suppression.created"]
    assert json.loads(told)["data"] == {
        "suppression": {"id": made["id"], "crn": made["crn"], "name": "gone@mx.test"},
        "reason": "auto_bounce",
        "source_message": made["source_message"],
        "principal": None,
        "source": None,
    }
