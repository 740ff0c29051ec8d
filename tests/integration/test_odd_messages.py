"""Odd messages: each is delivered or refused, and holds up no other."""

from __future__ import annotations

import json
from dataclasses import replace
from email.message import EmailMessage
from typing import cast

import pytest

from cloudcore.outbound.mail_transfer import MailSender, PlatformMail
from tests.integration.notifications_world import World


class FaultyMail(PlatformMail):
    """Sends all mail but one, at which it fails in a way that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__(cast("MailSender", None), "news@registry.test")
        self.subjects: list[str] = []

    async def send(self, message: EmailMessage) -> None:
        if message["Subject"] == "bad":
            raise RuntimeError("unforeseen")
        self.subjects.append(message["Subject"])


async def test_raw_json_that_no_parser_takes_holds_up_no_other(notified: World) -> None:
    topic = await notified.topic()
    await notified.confirmed(topic, raw_message_delivery=True)
    for message in ("[" * 5000, "next"):
        await notified.publish(topic, message)
    await notified.deliver()
    assert sorted(each.body for each in notified.hook.got[1:]) == [b"[" * 5000, b"next"]


async def test_an_attempt_that_fails_unforeseen_counts_as_one_and_holds_up_no_other(
    notified: World, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await notified.topic(delivery_policy={"max_retries": 1})
    made = await notified.subscribe(topic, protocol="email", endpoint="a@example.org")
    await notified.deliver()
    attached = next(notified.mailbox.mails[0].iter_attachments())
    assert (await notified.confirm(json.loads(attached.get_content())["token"])).is_success
    mail = FaultyMail()
    notified.served.notifications = replace(notified.served.notifications, mail=mail)
    for subject in ("bad", "good"):
        await notified.publish(topic, subject=subject)
    await notified.deliver()
    await notified.deliver(after=20)
    assert mail.subjects == ["good"]
    shown = await notified.show(topic, made.json()["subscription"])
    assert [each["code"] for each in shown["faults"]] == ["INTERNAL_ERROR", "MESSAGE_DROPPED"]
    assert "unforeseen" in caplog.text


async def test_a_subject_of_several_lines_and_a_url_that_no_index_takes_are_refused(
    notified: World,
) -> None:
    topic = await notified.topic()
    for length, wanted in ((2048, 201), (2049, 400)):
        url = f"{notified.hook.url}/".ljust(length, "a")
        assert (await notified.subscribe(topic, endpoint=url)).status_code == wanted
    path = f"/v1/topics/{topic['id']}/messages"
    for subject in ("a\nb", "a\x85b", "a\u2028b", "a\u2029b"):
        answer = await notified.ask("POST", path, {"message": "m", "subject": subject})
        assert (answer.status_code, answer.json()["error"]["params"]["field"]) == (400, "subject")


ENCODED = (
    "=?us-ascii?q?a=0d=0aReply-To:_b@example.org?=",
    "=?us-ascii?q?a=0d=0a=0d=0aThe_text_of_somebody_else?=",
    "é =?utf-8?b?gg==?=",
    "a=?utf-8?q?b?==?=?",
)


async def test_a_subject_that_holds_an_encoded_word_is_text(notified: World) -> None:
    topic = await notified.topic()
    await notified.subscribe(topic, protocol="email", endpoint="a@example.org")
    await notified.deliver()
    plain = notified.mailbox.mails[0]
    attached = next(plain.iter_attachments())
    assert (await notified.confirm(json.loads(attached.get_content())["token"])).is_success
    for subject in ENCODED:
        await notified.publish(topic, subject=subject)
        await notified.deliver()
        mail = notified.mailbox.mails[-1]
        assert mail["Subject"].replace("= ?", "=?") == subject
        assert {*mail.keys()} == {*plain.keys(), "List-Unsubscribe", "List-Unsubscribe-Post"}


async def test_a_queue_takes_all_attributes_of_a_topics_message(notified: World) -> None:
    queue_id = await notified.queue("orders")
    topic = await notified.topic()
    await notified.subscribe(topic, protocol="queue", endpoint="orders")
    sent = {f"{'n' * 250}{number}": "v" * 1024 for number in range(20)}
    await notified.publish(topic, "m" * 180_000, attributes=sent)
    await notified.deliver()
    ((_, attributes),) = await notified.queued(queue_id)
    assert attributes == sent
