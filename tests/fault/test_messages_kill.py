"""Workers killed between the acceptance of a message and the record that it was sent."""

from __future__ import annotations

import asyncio

import pytest
from aiosmtpd.smtp import SMTP

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.email import sender_rows
from cloudcore.email.messages import rows
from cloudcore.email.messages.bodies import sealed_content
from cloudcore.email.messages.mime import Content, mailbox
from cloudcore.email.messages.submission import SEND, Accepted, Draft, accept
from cloudcore.email.needs import SendingTerms
from cloudcore.email.resources import SendingIdentity
from tests.databases import on_both_databases
from tests.fault.certificate_worker import LEASE
from tests.fault.deaths import be_killed
from tests.fault.message_worker import END, KEYRING, PLACES, worker
from tests.integration.sending_world import Delivery, MailServer
from tests.jobs import end_leases, running, until
from tests.kms_world import ACME, add_account

SENDER = "ada@acme.example.com"


def add_identity(tx: Connection) -> None:
    """Let the account send from an address, which nothing signs."""
    now = system_clock()
    identity = SendingIdentity(
        id=uuid7(),
        account_id=ACME,
        region="local",
        created_at=now,
        updated_at=now,
        value=SENDER,
        kind="address",
        status="verified",
        verified_at=now,
    )
    sender_rows.IDENTITY_ROWS.add(tx, identity)


def accepted(tx: Connection) -> Accepted:
    """Accept a message to two recipients."""
    message_id = uuid7()
    draft = Draft(
        id=message_id,
        account_id=ACME,
        region="local",
        sender=mailbox(SENDER, "from"),
        to=[mailbox("bob@one.example.com", "to"), mailbox("eve@one.example.com", "to")],
        cc=[],
        bcc=[],
        subject="Hello",
        template=None,
        sealed=sealed_content(KEYRING, message_id, Content(text="Hello.\n")),
    )
    return accept(tx, draft, SendingTerms(None, 100), system_clock(), checks_room=True)


@on_both_databases
@pytest.mark.timeout(120)
async def test_a_worker_killed_between_acceptance_and_record_loses_and_doubles_nothing(
    database: Database, metadata_url: str
) -> None:
    """But for what the mail server took, and nobody could record: that comes again, and is told by
    its Message-ID."""
    deliveries: list[Delivery] = []
    mail_server = MailServer("127.0.0.1", deliveries)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(mail_server), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await database.write(add_account, ACME)
    await database.write(add_identity)
    async with server:
        for place in PLACES:
            deliveries.clear()
            made = await database.write(accepted)
            await be_killed(place, "tests.fault.message_worker", metadata_url, str(port))
            ended = await asyncio.to_thread(end_leases, metadata_url)
            assert set(ended) == (set() if place == LEASE else {SEND})

            async def is_sent(found: Accepted = made) -> bool:
                message = await database.read(rows.ROWS.find, ACME, found.message.id)
                return message is not None and message.status == "sent"

            async with running(worker(database, port)):
                await until(is_sent)
            by_recipient = [each.recipients[0] for each in deliveries]
            assert {*by_recipient} == {"bob@one.example.com", "eve@one.example.com"}
            if place != END:
                assert len(by_recipient) == 2, place
            (message_id,) = {each.mail["Message-ID"] for each in deliveries}
            assert message_id == f"<{made.message.id}@acme.example.com>"
            given = await database.read(rows.list_recipients, ACME, made.message.id)
            assert [each.attempts for each in given] == [1, 1]
