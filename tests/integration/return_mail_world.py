"""A message that was sent, and the mail server that its reports come back to, in this process."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.email.bounces import bounces
from cloudcore.email.bounces.mail_server import Reader, taking_mail
from cloudcore.email.messages import rows
from cloudcore.email.messages.bodies import sealed_content
from cloudcore.email.messages.mime import Content
from cloudcore.email.messages.rows import Recipient
from cloudcore.email.needs import EmailNeeds, ReturnMail
from cloudcore.email.resources import Message, MessageStatus, Suppression, status_of
from cloudcore.email.suppressions import ROWS
from tests.integration.served_world import Served

VECTORS: Final = Path(__file__).parent.parent / "vectors" / "returned_mail"
DOMAIN: Final = "bounces.test"
GONE, ADA = "gone@mx.test", "Ada@mx.test"


@dataclass
class World:
    """A message of acme to two recipients, and where its reports go."""

    served: Served
    needs: EmailNeeds
    port: int
    message_id: str

    def return_path(self, position: int = 0) -> str:
        """Return where reports of a delivery go."""
        return self.needs.return_path(self.message_id, position)

    async def hand_over(self, data: bytes, to: str = "", sender: str = "") -> tuple[int, str]:
        """Send a mail as a mail server does; return the last answer."""
        return await asyncio.to_thread(self._hand_over, data, to or self.return_path(), sender)

    def _hand_over(self, data: bytes, to: str, sender: str) -> tuple[int, str]:
        with smtplib.SMTP("127.0.0.1", self.port) as client:
            client.ehlo("mx.test")
            assert client.mail(sender)[0] == 250
            code, words = client.rcpt(to)
            if code == 250:
                code, words = client.data(data)
            return code, words.decode()

    async def recipients(self) -> list[tuple[str, str | None]]:
        """Return the status and the reason of each recipient."""
        account_id = self.served.acme.account_id
        found = await self.served.database.read(rows.list_recipients, account_id, self.message_id)
        return [(each.status, each.reason) for each in found]

    async def message(self) -> Any:  # noqa: ANN401 - JSON
        """Return the message as its owner sees it."""
        path = f"/v1/messages/{self.message_id}"
        answer = await self.served.ask("GET", path, token=self.served.acme.program_token)
        return answer.json()["message"]

    async def suppressions(self, reason: str = "") -> list[Any]:
        """Return the suppressions of the account that mail made, as their owner sees them."""
        path = f"/v1/suppressions?limit=200{reason and f'&reason={reason}'}"
        answer = await self.served.ask("GET", path, token=self.served.acme.program_token)
        found = answer.json()["suppressions"]
        return [each for each in found if each["reason"] != "manual"]

    async def set_status(self, status: MessageStatus, position: int = 0) -> None:
        """Put one recipient into a state."""
        await self.served.database.write(self._set_status, status, position)

    def _set_status(self, tx: Connection, status: MessageStatus, position: int) -> None:
        account_id, now = self.served.acme.account_id, self.served.clock()
        found = rows.find_recipient(tx, account_id, self.message_id, position)
        assert found is not None
        due = now if status in ("queued", "deferred") else None
        changed = found._replace(status=status, next_attempt_at=due)
        rows.change_recipient(tx, changed, now)

    async def suppress(self, address: str, expires_at: int | None = None) -> str:
        """Suppress an address as its owner does; return the id."""
        now = self.served.clock()
        made = Suppression(
            id=uuid7(),
            account_id=self.served.acme.account_id,
            region="local",
            created_at=now,
            updated_at=now,
            address=address,
            folded=address.lower(),
            expires_at=expires_at,
        )
        await self.served.database.write(ROWS.add, made)
        return made.id


@asynccontextmanager
async def returning(served: Served, **changes: object) -> AsyncIterator[World]:
    """Take reports of a message that was sent to two recipients; change what email needs."""
    needs = replace(served.email, return_mail=ReturnMail(DOMAIN), **changes)  # type: ignore[arg-type]
    message_id = uuid7()
    await served.database.write(_add_sent, served, message_id)
    reader = Reader(
        DOMAIN,
        needs.return_key,
        lambda returned: needs.database.read(bounces.find_delivery, returned),
        lambda returned, report: needs.database.write(bounces.note, needs, returned, report),
    )
    async with taking_mail(reader, DOMAIN, "127.0.0.1", 0) as port:
        yield World(served, needs, port, message_id)


def _add_sent(tx: Connection, served: Served, message_id: str) -> None:
    now, account_id = served.clock(), served.acme.account_id
    given = [
        Recipient(
            message_id=message_id,
            position=position,
            account_id=account_id,
            region="local",
            address=address,
            folded=address.lower(),
            kind="to",
            status="sent",
            reason=None,
            attempts=1,
            last_attempt_at=now,
            source_ip=None,
            next_attempt_at=None,
        )
        for position, address in enumerate((GONE, ADA))
    ]
    message = Message(
        id=message_id,
        account_id=account_id,
        region="local",
        created_at=now,
        updated_at=now,
        sender="shop@acme.test",
        to=[GONE, ADA],
        subject="Hello",
        status=status_of(each.status for each in given),
        identity="acme.test",
        identity_id=uuid7(),
        ended_at=now,
    )
    content = sealed_content(served.keyring, message_id, Content(text="Hello"))
    rows.add(tx, message, given, content)


def vector(name: str) -> bytes:
    """Return a mail that came back."""
    return (VECTORS / f"{name}.eml").read_bytes()
