"""A served install with topics, beside a webhook and a mail server that tests look into."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx
from aiosmtpd.smtp import SMTP, Envelope, Session

from cloudcore.clock import MICROSECONDS
from cloudcore.jobs.kinds import JobKind
from cloudcore.jobs.worker import JobPace
from cloudcore.notifications.family import NOTIFICATIONS
from tests.integration.served_world import Served, Tenant, open_served
from tests.jobs import run_due
from tests.webhook_receiver import Receiver, webhook_receiver


@dataclass
class Mailbox:
    """A mail server's handler that keeps what comes."""

    mails: list[EmailMessage] = field(default_factory=list)
    refusal: str = ""

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        """Keep a message."""
        if self.refusal:
            return self.refusal
        content = envelope.content
        assert isinstance(content, bytes)
        mail = message_from_bytes(content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 taken"


@asynccontextmanager
async def mail_server() -> AsyncIterator[tuple[Mailbox, str]]:
    """Run a mail server; return its mailbox and its URL."""
    mailbox = Mailbox()
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: SMTP(mailbox), "127.0.0.1", 0) as server:
        yield mailbox, f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@dataclass
class World:
    """The install, and what its subscribers see."""

    served: Served
    hook: Receiver
    mailbox: Mailbox
    pace: JobPace = field(default_factory=lambda: JobPace(slots=64, poll_seconds=0.01))

    @property
    def acme(self) -> Tenant:
        """Return the tenant who publishes."""
        return self.served.acme

    def kinds(self) -> list[JobKind]:
        """Return the jobs of notifications."""
        return list(NOTIFICATIONS.runtime.job_kinds(self.served.notifications))

    async def ask(
        self, method: str, path: str, body: object = None, token: str = ""
    ) -> httpx.Response:
        """Send a request of acme's program."""
        return await self.served.ask(method, path, body, token=token or self.token())

    def token(self) -> str:
        """Return an access token of acme's program that is valid now."""
        return self.served.fresh_token()

    async def topic(self, name: str = "t", **fields: Any) -> dict[str, Any]:  # noqa: ANN401
        """Create a topic."""
        made = await self.ask("POST", "/v1/topics", {"name": name, **fields})
        assert made.status_code == 201, made.text
        found: dict[str, Any] = made.json()["topic"]
        return found

    async def subscribe(
        self,
        topic: Mapping[str, Any],
        **fields: Any,  # noqa: ANN401
    ) -> httpx.Response:
        """Subscribe the webhook, or what `fields` say, to a topic."""
        body = {"protocol": "http", "endpoint": f"{self.hook.url}/hook", **fields}
        return await self.ask("POST", f"/v1/topics/{topic['id']}/subscriptions", body)

    async def confirmed(
        self,
        topic: Mapping[str, Any],
        **fields: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """Subscribe the webhook and confirm it by the token that it gets; return its record."""
        made = await self.subscribe(topic, **fields)
        assert made.status_code == 201, made.text
        await self.deliver()
        token = self.hook.of("subscription_confirmation")[-1].envelope["token"]
        answer = await self.confirm(token)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = made.json()["subscription"]
        return found | {"secret": made.json()["signing_secret"]}

    async def queue(self, name: str) -> str:
        """Create a queue, and return its id."""
        made = await self.ask("POST", "/v1/queues", {"name": name})
        assert made.status_code == 201, made.text
        queue_id: str = made.json()["queue"]["id"]
        return queue_id

    async def queued(self, queue_id: str) -> list[tuple[dict[str, Any], dict[str, str]]]:
        """Take all messages of a queue; return the envelope and the attributes of each."""
        path = f"/v1/queues/{queue_id}/messages"
        leased = (await self.ask("POST", f"{path}/lease", {"max_messages": 10})).json()["messages"]
        if leased:
            ids = {"lease_ids": [each["lease_id"] for each in leased]}
            assert (await self.ask("POST", f"{path}/acknowledge", ids)).status_code == 200
        return [(json.loads(each["body"]), each["attributes"]) for each in leased]

    async def confirm(self, token: object, **headers: str) -> httpx.Response:
        """Post a token, as nobody."""
        path = "/v1/subscription-confirmations"
        return await self.served.ask("POST", path, {"token": token}, headers=headers)

    async def publish(
        self,
        topic: Mapping[str, Any],
        message: str = "hello",
        **fields: Any,  # noqa: ANN401
    ) -> str:
        """Publish a message, and return its id."""
        body = {"message": message, **fields}
        answer = await self.ask("POST", f"/v1/topics/{topic['id']}/messages", body)
        assert answer.status_code == 202, answer.text
        message_id: str = answer.json()["message_id"]
        return message_id

    async def show(self, topic: Mapping[str, Any], subscription: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return the record of a subscription."""
        path = f"/v1/topics/{topic['id']}/subscriptions/{subscription['id']}"
        return (await self.ask("GET", path)).json()["subscription"]

    async def deliver(self, *, after: float = 0) -> None:
        """Let some seconds pass, and run the jobs until none is due."""
        self.served.clock.now += int(after * MICROSECONDS)
        served = self.served
        await run_due(served.database, self.kinds(), served.clock, self.pace)


@asynccontextmanager
async def open_world(data: Path, database_url: str) -> AsyncIterator[World]:
    """Open an install whose webhook and mail server are the test's."""
    async with (
        mail_server() as (mailbox, url),
        webhook_receiver() as hook,
        open_served(
            data,
            database_url,
            webhook_allowed=hook.url,
            smtp_url=url,
            smtp_from="news@registry.test",
        ) as served,
    ):
        yield World(served, hook, mailbox)
