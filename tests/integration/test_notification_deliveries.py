"""Deliveries of a topic's messages: raw bodies, policies, attempts, dead letters and deletion."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.queue.queue import QUEUE_MESSAGES
from cloudcore.quotas.limits import put_limit
from tests.databases import on_both_databases
from tests.integration.notifications_world import World
from tests.webhook_receiver import status

HOUR = 3600


async def test_raw_delivery_is_exact_and_for_webhooks_alone(notified: World) -> None:
    await notified.queue("orders")
    topic = await notified.topic()
    for protocol, endpoint in (("email", "a@example.org"), ("queue", "orders")):
        fields = {"protocol": protocol, "endpoint": endpoint}
        answer = await notified.subscribe(topic, **fields, raw_message_delivery=True)
        assert answer.status_code == 400
        made = (await notified.subscribe(topic, **fields)).json()["subscription"]
        path = f"/v1/topics/{topic['id']}/subscriptions/{made['id']}"
        patched = await notified.ask("PATCH", path, {"raw_message_delivery": True})
        assert patched.status_code == 400
    made = await notified.confirmed(topic, raw_message_delivery=True)
    body = '{ "a" :\r\n 1,\t"é": "\u2028"}  '
    own = 'application/ld+json; profile="https://example.org/x"'
    await notified.publish(topic, body, content_type="application/json")
    await notified.publish(topic, "<p>", content_type=own)
    await notified.publish(topic, '{"is": "not said to be JSON"}')
    await notified.deliver()
    by_type = {each.headers["content-type"]: each for each in notified.hook.got[1:]}
    assert by_type["application/json"].body == body.encode()
    assert by_type[own].body == b"<p>"
    assert by_type["text/plain; charset=utf-8"].body == b'{"is": "not said to be JSON"}'
    assert len(by_type) == 3
    # The library checks the time too, so the signature is compared at the time that was signed.
    _verify(made["secret"], by_type["application/json"])


def _verify(secret: str, got: Any) -> None:  # noqa: ANN401
    webhook = Webhook(secret)
    sent = int(got.headers["webhook-timestamp"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhook, "_Webhook__verify_timestamp", lambda _header: _moment(sent))
        webhook.verify(got.body, dict(got.headers))


def _moment(seconds: int) -> Any:  # noqa: ANN401
    return datetime.fromtimestamp(seconds, UTC)


async def test_a_content_type_that_is_none_is_refused(notified: World) -> None:
    path = f"/v1/topics/{(await notified.topic())['id']}/messages"
    for wrong in (
        *("", "text", "text/", "text/plain\n", "text/plain\r\nX: y"),
        *("text/plain; a", "é/a", "a/b c"),
    ):
        answer = await notified.ask("POST", path, {"message": "m", "content_type": wrong})
        assert answer.status_code == 400, wrong
        assert answer.json()["error"]["params"]["field"] == "content_type", wrong


async def test_the_envelope_is_json_whatever_its_message_is(notified: World) -> None:
    topic = await notified.topic()
    await notified.confirmed(topic)
    await notified.publish(topic, "<p>", content_type="text/html")
    await notified.deliver()
    (got,) = notified.hook.of("notification")
    assert got.headers["content-type"] == "application/json"


async def test_a_delivery_policy_overrides_the_topics_field_by_field(notified: World) -> None:
    topic = await notified.topic(delivery_policy={"max_retries": 1, "min_delay_seconds": 5})
    made = await notified.confirmed(topic, delivery_policy={"min_delay_seconds": 50})
    notified.hook.answer = lambda _got: status(503)
    await notified.publish(topic)
    await notified.deliver()
    await notified.deliver(after=49)
    assert len(notified.hook.of("notification")) == 1  # its own pause, not the topic's
    await notified.deliver(after=1)
    assert len(notified.hook.of("notification")) == 2
    await notified.deliver(after=HOUR)
    assert len(notified.hook.of("notification")) == 2  # the topic's number of retries
    # A later change of the topic shows through for fields that are not overridden.
    changed = await notified.ask(
        "PATCH", f"/v1/topics/{topic['id']}", {"delivery_policy": {"max_retries": 2}}
    )
    assert changed.json()["topic"]["delivery_policy"] == {"max_retries": 2}
    await notified.publish(topic)
    for _ in range(4):
        await notified.deliver(after=50)
    assert len(notified.hook.of("notification")) == 5
    assert (await notified.show(topic, made))["delivery_policy"] == {"min_delay_seconds": 50}


async def test_every_attempt_has_one_id_and_its_own_signature(notified: World) -> None:
    topic = await notified.topic()
    made = await notified.confirmed(topic)
    answers = iter([status(500), status(429, "Retry-After: 90"), status(200)])
    notified.hook.answer = lambda _got: next(answers)
    message_id = await notified.publish(topic)
    await notified.deliver()
    await notified.deliver(after=20)
    fault = (await notified.show(topic, made))["faults"][0]
    assert (fault["code"], fault["occurrences"], fault["severity"]) == (
        *("ENDPOINT_FAILED", 2),
        "warning",
    )
    await notified.deliver(after=20)
    assert len(notified.hook.of("notification")) == 2  # Retry-After is honoured
    await notified.deliver(after=70)
    got = notified.hook.of("notification")
    assert {each.headers["webhook-id"] for each in got} == {message_id}
    assert len({each.body for each in got}) == 1
    assert len({each.headers["webhook-timestamp"] for each in got}) == 3
    assert len({each.headers["webhook-signature"] for each in got}) == 3
    for each in got:
        _verify(made["secret"], each)
    with pytest.raises(WebhookVerificationError):
        _verify("whsec_" + "A" * 44, got[0])
    assert (await notified.show(topic, made))["faults"] == []  # a success clears them


async def test_a_slow_endpoint_does_not_delay_others(notified: World) -> None:
    topic = await notified.topic(delivery_policy={"timeout_seconds": 1, "max_retries": 0})
    slow = await notified.confirmed(topic, endpoint=f"{notified.hook.url}/slow")
    fast = await notified.confirmed(topic, endpoint=f"{notified.hook.url}/fast")
    never = asyncio.Event()
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    order: list[str] = []

    def answer(got: Any) -> Any:  # noqa: ANN401
        order.append(got.path)
        return never if got.path == "/slow" else endless

    notified.hook.answer = answer
    for _ in range(3):
        await notified.publish(topic)
    await notified.deliver()
    assert order.count("/fast") == order.count("/slow") == 3
    codes = [each["code"] for each in (await notified.show(topic, slow))["faults"]]
    assert codes == ["ENDPOINT_TIMEOUT", "MESSAGE_DROPPED"]
    assert (await notified.show(topic, fast))["faults"] == []


@on_both_databases
async def test_after_the_last_failure_comes_the_dead_letter_queue(notified: World) -> None:
    dead = await notified.queue("dead")
    topic = await notified.topic(delivery_policy={"max_retries": 1})
    fields = {"redrive_policy": {"dead_letter_queue": "dead"}, "raw_message_delivery": True}
    made = await notified.confirmed(topic, **fields)
    notified.hook.answer = lambda _got: status(500)
    message_id = await notified.publish(topic, "raw", attributes={"a": "b"})
    await notified.deliver()
    assert not await notified.queued(dead)
    await notified.deliver(after=20)
    ((envelope, attributes),) = await notified.queued(dead)
    assert envelope["message_id"] == message_id
    assert envelope["message"] == "raw"  # the envelope, even of a raw delivery
    assert envelope["attributes"] == {"a": "b"}
    assert attributes["error_code"] == "ENDPOINT_FAILED"
    assert attributes["attempts"] == "2"
    assert attributes["subscription_id"] == made["id"]
    # A queue that has vanished is a fault, never silence.
    assert (await notified.ask("DELETE", f"/v1/queues/{dead}")).status_code == 204
    await notified.publish(topic)
    await notified.deliver()
    await notified.deliver(after=20)
    codes = {each["code"]: each for each in (await notified.show(topic, made))["faults"]}
    assert codes["DEAD_LETTER_QUEUE_MISSING"]["occurrences"] == 1
    assert codes["DEAD_LETTER_QUEUE_MISSING"]["severity"] == "error"


async def limit_messages(notified: World, most: int) -> None:
    """Let acme's queues hold at most so many messages."""
    served, name = notified.served, QUEUE_MESSAGES.name
    await served.database.write(put_limit, served.acme.account_id, name, most, served.clock())


async def test_a_full_queue_gets_its_messages_once_there_is_room(notified: World) -> None:
    queue, topic = await notified.queue("orders"), await notified.topic()
    made = (await notified.subscribe(topic, protocol="queue", endpoint="orders")).json()
    await limit_messages(notified, 1)
    for message in ("one", "two"):
        await notified.publish(topic, message)
        await notified.deliver()
    (fault,) = (await notified.show(topic, made["subscription"]))["faults"]
    assert (fault["code"], fault["occurrences"]) == ("QUEUE_FULL", 1)
    assert [each["message"] for each, _ in await notified.queued(queue)] == ["one"]
    await notified.deliver(after=20)
    assert [each["message"] for each, _ in await notified.queued(queue)] == ["two"]
    assert (await notified.show(topic, made["subscription"]))["faults"] == []


async def test_what_a_deleted_queue_cannot_get_comes_to_the_dead_letter_queue(
    notified: World,
) -> None:
    orders, dead = await notified.queue("orders"), await notified.queue("dead")
    topic = await notified.topic()
    fields = {"endpoint": "orders", "redrive_policy": {"dead_letter_queue": "dead"}}
    assert (await notified.subscribe(topic, protocol="queue", **fields)).status_code == 201
    assert (await notified.ask("DELETE", f"/v1/queues/{orders}")).status_code == 204
    await notified.publish(topic)
    await notified.deliver()  # and not again
    ((envelope, attributes),) = await notified.queued(dead)
    assert envelope["message"] == "hello"
    assert (attributes["error_code"], attributes["attempts"]) == ("QUEUE_MISSING", "1")


async def test_a_full_dead_letter_queue_gets_the_message_a_minute_later(notified: World) -> None:
    dead = await notified.queue("dead")
    topic = await notified.topic(delivery_policy={"max_retries": 0})
    made = await notified.confirmed(topic, redrive_policy={"dead_letter_queue": "dead"})
    notified.hook.answer = lambda _got: status(500)
    await limit_messages(notified, 0)
    await notified.publish(topic)
    await notified.deliver()
    faults = {each["code"] for each in (await notified.show(topic, made))["faults"]}
    assert faults == {"ENDPOINT_FAILED", "DEAD_LETTER_QUEUE_FULL"}
    await limit_messages(notified, 1)
    await notified.deliver(after=59)
    assert await notified.queued(dead) == []
    await notified.deliver(after=2)
    ((_, attributes),) = await notified.queued(dead)
    assert attributes["attempts"] == "1"


async def test_mail_waits_while_the_install_sends_none(
    notified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await notified.topic()
    made = await notified.subscribe(topic, protocol="email", endpoint="a@example.org")
    needs = notified.served.notifications
    monkeypatch.setattr(
        notified, "kinds", lambda: list(NOTIFICATIONS.runtime.job_kinds(replace(needs, mail=None)))
    )
    await notified.deliver()
    (fault,) = (await notified.show(topic, made.json()["subscription"]))["faults"]
    assert (fault["code"], notified.mailbox.mails) == ("MAIL_NOT_CONFIGURED", [])
    monkeypatch.undo()
    await notified.deliver(after=20)
    assert len(notified.mailbox.mails) == 1


async def test_deletion_of_a_subscription_stops_waiting_attempts(notified: World) -> None:
    topic = await notified.topic()
    made = await notified.confirmed(topic)
    notified.hook.answer = lambda _got: status(500)
    await notified.publish(topic)
    await notified.deliver()
    path = f"/v1/topics/{topic['id']}/subscriptions/{made['id']}"
    assert (await notified.ask("DELETE", path)).status_code == 204
    assert (await notified.ask("DELETE", path)).status_code == 404
    await notified.deliver(after=HOUR)
    assert len(notified.hook.of("notification")) == 1


async def test_a_rotated_secret_co_signs_for_a_day(notified: World) -> None:
    topic = await notified.topic()
    made = await notified.confirmed(topic)
    path = f"/v1/topics/{topic['id']}/subscriptions/{made['id']}/signing-secret"
    shown = (await notified.ask("GET", path)).json()
    assert shown == {
        "signing_secret": made["secret"],
        "previous_signing_secret": None,
        "previous_expires_at": None,
    }
    rotated = (await notified.ask("POST", f"{path}/rotate")).json()
    assert rotated["previous_signing_secret"] == made["secret"]
    assert rotated["signing_secret"] != made["secret"]
    await notified.publish(topic)
    await notified.deliver()
    (got,) = notified.hook.of("notification")
    for secret in (rotated["signing_secret"], made["secret"]):
        _verify(secret, got)
    await notified.publish(topic)
    await notified.deliver(after=24 * HOUR)
    _verify(rotated["signing_secret"], notified.hook.got[-1])
    with pytest.raises(WebhookVerificationError):
        _verify(made["secret"], notified.hook.got[-1])
    mail = (await notified.subscribe(topic, protocol="email", endpoint="a@example.org")).json()
    other = f"/v1/topics/{topic['id']}/subscriptions/{mail['subscription']['id']}/signing-secret"
    assert (await notified.ask("GET", other)).status_code == 404


async def test_mail_has_the_envelope_and_a_link_to_unsubscribe(notified: World) -> None:
    topic = await notified.topic()
    made = (await notified.subscribe(topic, protocol="email", endpoint="a@example.org")).json()
    await notified.deliver()
    attached = next(notified.mailbox.mails[0].iter_attachments())
    token = _json(attached)["token"]
    assert (await notified.confirm(token)).status_code == 200
    message_id = await notified.publish(topic, "Größe\n.\nend", subject="Grüße")
    await notified.deliver()
    mail = notified.mailbox.mails[1]
    assert mail["Subject"] == "Grüße"
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    text = mail.get_body()
    assert text is not None
    assert text.get_content().splitlines()[:3] == ["Größe", ".", "end"]
    envelope = _json(next(mail.iter_attachments()))
    assert envelope["message_id"] == message_id
    # As it came: mail programs decode no words in it.
    link = dict(mail.raw_items())["List-Unsubscribe"]
    assert link == f"<{envelope['unsubscribe_url']}>"
    # What the mail server refuses for good is not tried again; what it delays is.
    notified.mailbox.refusal = "451 later"
    await notified.publish(topic, "later")
    await notified.deliver()
    fault = (await notified.show(topic, made["subscription"]))["faults"][0]
    assert (fault["code"], fault["message"]) == ("MAIL_REFUSED", "the mail server answered 451")
    notified.mailbox.refusal = ""
    await notified.deliver(after=20)
    assert len(notified.mailbox.mails) == 3
    notified.mailbox.refusal = "554 never"
    await notified.publish(topic, "never")
    await notified.deliver()
    codes = [each["code"] for each in (await notified.show(topic, made["subscription"]))["faults"]]
    assert codes == ["MAIL_REFUSED", "MESSAGE_DROPPED"]


def _json(part: Any) -> Any:  # noqa: ANN401
    return json.loads(part.get_content())
