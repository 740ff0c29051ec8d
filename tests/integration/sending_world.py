"""An install that sends the mail of accounts to mail servers of the test."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
from aiosmtpd.smtp import SMTP, Envelope, Session

from cloudcore.clock import MICROSECONDS
from cloudcore.email.family import EMAIL
from registry.settings.email import EmailSettings
from tests.integration.mail_world import World
from tests.integration.notifications_world import Mailbox
from tests.integration.served_world import Tenant, open_served
from tests.name_server import name_server

HOST_NAME = "mail.platform.test"
BOUNCES = "bounces.platform.test"
DAY = 24 * 3600


class Delivery(NamedTuple):
    """A message as a mail server got it."""

    server: str
    """The address that it came to."""
    peer: str
    """The address that it came from."""
    greeted: str
    sender: str
    recipients: list[str]
    content: bytes
    is_tls: bool

    @property
    def mail(self) -> EmailMessage:
        """Return the message."""
        mail = message_from_bytes(self.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        return mail


@dataclass
class MailServer:
    """The mail server of a domain: keeps what comes, or refuses it."""

    address: str
    deliveries: list[Delivery]
    refusals: dict[str, str] = field(default_factory=dict)
    """What it answers to recipients, by address."""
    refusal: str = ""
    """What it answers to a message."""
    drops: bool = False
    """It takes a message and closes the connection, without a word."""
    held: asyncio.Event | None = None
    """It answers no message before this is set."""
    waiting: list[str] = field(default_factory=list)
    """The recipients of those messages."""

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: object
    ) -> str:
        """Take a recipient or refuse it."""
        if refusal := self.refusals.get(address):
            return refusal
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """Keep a message."""
        if self.held is not None:
            self.waiting += envelope.rcpt_tos
            await self.held.wait()
        if self.refusal:
            return self.refusal
        content = envelope.content
        assert isinstance(content, bytes)
        peer = cast("tuple[str, int]", session.peer)[0]
        greeted = str(session.host_name)
        sender = str(envelope.mail_from)
        self.deliveries.append(
            Delivery(
                self.address,
                peer,
                greeted,
                sender,
                envelope.rcpt_tos,
                content,
                session.ssl is not None,
            )
        )
        if self.drops:
            transport = cast("asyncio.Transport", server.transport)
            transport.abort()
        return "250 taken"


@dataclass
class SendingWorld(World):
    """The install, and the mail servers that it reaches, all at one port."""

    port: int = 0
    deliveries: list[Delivery] = field(default_factory=list)
    servers: dict[str, MailServer] = field(default_factory=dict)
    listening: list[asyncio.Server] = field(default_factory=list)

    async def mail_server(
        self, domain: str, address: str, tls: ssl.SSLContext | None = None
    ) -> MailServer:
        """Run the mail server of a domain, which may offer TLS."""
        server = MailServer(address, self.deliveries)
        loop = asyncio.get_running_loop()
        self.listening.append(
            await loop.create_server(
                lambda: SMTP(server, ident="test", tls_context=tls), address, self.port
            )
        )
        self.servers[domain] = server
        self.names.records[f"{domain}.", "MX"] = [f"10 mx.{domain}."]
        self.names.records[f"mx.{domain}.", "A"] = [address]
        return server

    def begin_second(self) -> None:
        """Let a second begin."""
        clock = self.served.clock
        clock.now += -clock.now % MICROSECONDS

    async def send(
        self, body: Mapping[str, object], *, of: Tenant | None = None, key: str = ""
    ) -> httpx.Response:
        """Ask to send a message; return the answer."""
        return await self.served.ask(
            "POST",
            "/v1/messages",
            {"from": "ada@acme.example.com", "subject": "Hello", "text": "Hello.\n", **body},
            token=self.token(of),
            headers={"Idempotency-Key": key} if key else None,
        )

    async def sent(self, sender: str = "ada@acme.example.com", **body: object) -> dict[str, Any]:
        """Have a message accepted; return its record."""
        answer = await self.send({"from": sender, **body})
        assert answer.status_code == 202, answer.text
        return dict(answer.json()["message"])

    async def message(self, made: dict[str, Any]) -> dict[str, Any]:
        """Return the record of a message as it is now."""
        answer = await self.get(f"/{made['id']}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["message"])

    async def get(self, path: str, *, of: Tenant | None = None) -> httpx.Response:
        """Ask for messages."""
        return await self.served.ask("GET", f"/v1/messages{path}", token=self.token(of))

    @property
    def kinds(self) -> list[Any]:
        """Return the kinds of the jobs of email."""
        return list(EMAIL.runtime.job_kinds(self.served.email))


def look_up(world: SendingWorld, name: bytes, **_: object) -> bytes:
    """Return the DKIM record of a name as the name server of the test has it."""
    (text,) = world.names.texts[name.decode()]
    return text.replace('" "', "").strip('"').encode()


def free_port() -> int:
    """Return a port that is free at all addresses of this machine."""
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def open_world(
    data: Path,
    database_url: str,
    *,
    dedicated_ips: str = "198.51.100.1, 198.51.100.2",
    **more: object,
) -> AsyncIterator[SendingWorld]:
    """Open an install that sends directly; acme may send from acme.example.com.

    `dedicated_ips` has at least one for each tenant.
    """
    port = free_port()
    settings = EmailSettings(
        email_sending="direct",
        email_host_name=HOST_NAME,
        email_allowed="127.0.0.0/8",
        email_port=port,
        bounce_domain=BOUNCES,
        email_dedicated_ips=dedicated_ips,
    )
    async with (
        name_server() as names,
        open_served(
            data,
            database_url,
            **{  # type: ignore[arg-type]
                "dns_resolver": names.address,
                "smtp_from": "platform@registry.test",
                "email": settings,
                **more,
            },
        ) as served,
    ):
        world = SendingWorld(served, names, Mailbox(), port)
        try:
            await world.verified("acme.example.com")
            yield world
        finally:
            for each in world.listening:
                each.close()
