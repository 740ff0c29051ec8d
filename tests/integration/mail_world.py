"""A served install that sends mail, with a name server and a mail server that tests look into."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx

from cloudcore.clock import MICROSECONDS
from cloudcore.email.family import EMAIL
from cloudcore.email.identity_verification import check_due
from cloudcore.email.resources import SendingIdentity
from cloudcore.email.sender_rows import IDENTITY_ROWS
from tests.integration.notifications_world import Mailbox, mail_server
from tests.integration.served_world import Served, Tenant, open_served
from tests.jobs import run_due
from tests.name_server import NameServer, name_server


@dataclass
class World:
    """The install, the names that it looks up, and the mail that it sends."""

    served: Served
    names: NameServer
    mailbox: Mailbox

    def token(self, tenant: Tenant | None = None) -> str:
        """Return an access token of a tenant's program that is valid now; by default acme's."""
        return self.served.fresh_token(tenant)

    async def ask(
        self, method: str, path: str, body: object = None, *, of: Tenant | None = None
    ) -> httpx.Response:
        """Send a request of a tenant's program about identities."""
        return await self.served.ask(method, f"/v1/identities{path}", body, token=self.token(of))

    async def identity(
        self, value: str, *, of: Tenant | None = None, **fields: object
    ) -> dict[str, Any]:
        """Ask to send from a domain or an address; return its record."""
        body = {"value": value, "kind": "address" if "@" in value else "domain", **fields}
        made = await self.ask("POST", "", body, of=of)
        assert made.status_code == 201, made.text
        return dict(made.json()["identity"])

    async def show(self, made: dict[str, Any], *, of: Tenant | None = None) -> dict[str, Any]:
        """Return the record of an identity as it is now."""
        answer = await self.ask("GET", f"/{made['id']}", of=of)
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["identity"])

    async def verified(self, domain: str, *, of: Tenant | None = None) -> dict[str, Any]:
        """Return the record of a domain whose DKIM record is published."""
        made = await self.identity(domain, of=of)
        self.publish(made)
        await self.work()
        return await self.show(made, of=of)

    def publish(self, made: dict[str, Any]) -> None:
        """Publish the DKIM record of a domain, as its owner would."""
        name, value = f"{made['dkim']['record_name']}.", made["dkim"]["record_value"]
        self.names.texts[name] = [f'"{value[:255]}" "{value[255:]}"']

    def link(self) -> str:
        """Return the token of the last mail's link."""
        text = self.mailbox.mails[-1].get_content()
        found = re.search(r"/v1/identity-confirmations\?token=(\S+)", text)
        assert found is not None, text
        return unquote(found[1])

    async def confirm(self, token: str) -> httpx.Response:
        """Press the button of the page that a link leads to."""
        return await self.served.submit("/v1/identity-confirmations", f"token={token}")

    async def row(self, made: dict[str, Any], *, of: Tenant | None = None) -> SendingIdentity:
        """Return the row of an identity."""
        account = (of or self.served.acme).account_id
        found = await self.served.database.read(IDENTITY_ROWS.find, account, made["id"])
        assert found is not None
        return found

    async def work(self, *, after: float = 0) -> None:
        """Let some seconds pass, run the chores, and the jobs until none is due."""
        served = self.served
        served.clock.now += int(after * MICROSECONDS)
        await check_due(served.email)
        await run_due(served.database, list(EMAIL.runtime.job_kinds(served.email)), served.clock)


@asynccontextmanager
async def open_world(data: Path, database_url: str) -> AsyncIterator[World]:
    """Open an install whose name server and mail server are the test's."""
    async with (
        mail_server() as (mailbox, url),
        name_server() as names,
        open_served(
            data,
            database_url,
            dns_resolver=names.address,
            smtp_url=url,
            smtp_from="platform@registry.test",
        ) as served,
    ):
        yield World(served, names, mailbox)
