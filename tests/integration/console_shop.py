"""The console in this process: a repository with images, and a browser that a test drives."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from sqlalchemy import bindparam, update

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.web.idempotency import RunOnce
from registry.composition.families import FAMILIES
from registry.console.app import Console
from registry.console.page_request import ConsoleSettings
from registry.console.sessions import COOKIE, Acting, ConsoleSession, CookieJar, Token
from registry.metadata.control_tables import deleted_manifests, tag_events
from registry.metadata.tables import manifests
from registry.oci.media_types import OCI_MANIFEST
from tests.integration.served_world import HOST, HOUR, URL, Served, open_served
from tests.tenants import allow

CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
NAME: Final = "acme/shop"
REFRESH_TOKEN: Final = "a-refresh-token-that-no-page-shows"

_OLDER: Final = (
    Statement(update(manifests).values(pushed_at=manifests.c.pushed_at - bindparam("passed"))),
    Statement(
        update(tag_events).values(occurred_at=tag_events.c.occurred_at - bindparam("passed"))
    ),
)

_DELETED_BY: Final = Statement(
    update(deleted_manifests)
    .values(deleted_by=bindparam("principal"))
    .where(deleted_manifests.c.digest.in_(listed("digests")))
)

Descriptor = dict[str, Any]


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class Shop:
    """A repository with images, and a browser whose pages' calls are counted."""

    served: Served
    bearer: str
    repository_id: str
    browser: httpx.AsyncClient
    app: Any
    """The console, an ASGI application."""
    calls: list[str] = field(default_factory=list)
    """Paths on ``/v1`` that pages have called."""

    @property
    def base(self) -> str:
        """Return the path of the repository's first page."""
        return f"/console/{NAME}"

    def address(self, path: str) -> str:
        """Return the address of a page of the repository: `path` is ``/tags``, or a query."""
        return f"{self.base}/-{path}" if path.startswith("/") else f"{self.base}{path}"

    async def see(self, path: str = "", status: int = 200) -> str:
        """Return a page of the repository."""
        answer = await self.browser.get(self.address(path))
        assert answer.status_code == status, answer.text
        return answer.text

    async def send(self, path: str, **fields: str) -> httpx.Response:
        """Send a form to a page of the repository."""
        return await self.browser.post(self.address(path), data={"csrf": "csrf", **fields})

    async def told(self, path: str, **fields: str) -> str:
        """Send a form, and return the page to which the change has led."""
        sent = await self.send(path, **fields)
        assert sent.status_code == 303, sent.text
        return (await self.browser.get(sent.headers["location"])).text

    async def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Call ``/v1`` below the repository, which must succeed."""
        answer = await self.served.ask(
            method,
            f"/v1/repositories/{self.repository_id}{path}",
            body,
            token=self.served.acme.program_token,
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def make(self, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        """Create something of acme on ``/v1``, and return its record."""
        return await self.served.make(path, body, token=self.served.acme.program_token)

    async def cost(self, path: str = "", **form: str) -> int:
        """Return how many calls a page takes, or a form with these fields."""
        self.calls.clear()
        address = self.address(path)
        sent = {"csrf": "csrf", **form}
        answer = await (
            self.browser.post(address, data=sent) if form else self.browser.get(address)
        )
        assert answer.status_code == 200, answer.text
        return len(self.calls)

    @asynccontextmanager
    async def browser_that_may(
        self, *actions: str, on: str = "*", person_token: str = ""
    ) -> AsyncIterator[httpx.AsyncClient]:
        """Open a browser that acts with the rights to do these actions alone."""
        name = f"limited-{secrets.token_hex(4)}"
        limited = await self.served.token_that_may(allow(*actions, on=on), name=name)
        async with browser_with(self.served, self.app, limited, person_token) as browser:
            yield browser

    async def age(self, days: int) -> None:
        """Let so many days have passed since all images were pushed and tagged."""
        passed = days * 24 * HOUR

        def change(tx: Connection) -> None:
            for statement in _OLDER:
                tx.execute(statement, passed=passed)

        await self.served.database.write(change)

    async def deleted_by(self, principal: str, digests: Sequence[str]) -> None:
        """Let a principal have deleted these images."""

        def change(tx: Connection) -> None:
            tx.execute(_DELETED_BY, principal=principal, digests=text_list(digests))

        await self.served.database.write(change)

    async def blob(self, content: bytes, media_type: str) -> Descriptor:
        digest = digest_of(content)
        path = f"/v2/{NAME}/blobs/uploads/?digest={digest}"
        answer = await self.served.ask("POST", path, content, token=self.bearer)
        assert answer.status_code == 201, answer.text
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    async def manifest(self, document: dict[str, Any], tag: str = "") -> Descriptor:
        body, kind = json.dumps(document).encode(), document["mediaType"]
        digest = digest_of(body)
        path = f"/v2/{NAME}/manifests/{tag or digest}"
        headers = {"Content-Type": kind}
        answer = await self.served.ask("PUT", path, body, token=self.bearer, headers=headers)
        assert answer.status_code == 201, answer.text
        return {"mediaType": kind, "digest": digest, "size": len(body)}

    async def image(self, name: str, tag: str = "", **fields: object) -> Descriptor:
        config = json.dumps({"os": "linux", "architecture": "amd64", "author": name}).encode()
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": await self.blob(config, CONFIG_TYPE),
            "layers": [await self.blob(name.encode(), "application/x")],
        }
        return await self.manifest(document | fields, tag)


@asynccontextmanager
async def open_shop(data: Path, **changes: Any) -> AsyncIterator[Shop]:  # noqa: ANN401
    """Open an install in a folder, with an empty repository and a browser that has signed in.

    `changes` are of its settings.
    """
    async with open_served(data, **changes) as served:
        acme, calls = served.acme, list[str]()
        made = await served.make("/v1/repositories", {"name": "shop"}, token=acme.program_token)
        bearer = await served.bearer(acme, f"repository:{NAME}:*")

        async def counted(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
            calls.append(scope["path"])
            await served.app(scope, receive, send)

        app = console_over(served, counted, changes.get("founders", "anyone"))
        async with browser_with(served, app, acme.program_token) as browser:
            yield Shop(served, bearer, made["id"], browser, app, calls)


def console_over(served: Served, app: Any, founders: Any = "anyone") -> Any:  # noqa: ANN401 - ASGI
    """Return the console of an install, over an application that answers ``/v1``."""
    console = Console(
        app,
        ConsoleSettings(URL, HOST, "local", FAMILIES, founders),
        keyring=served.keyring,
        clock=served.clock,
        once=RunOnce(served.database, served.keyring, served.clock, lambda: "unused"),
    )

    async def answered(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        scope["state"] = {"request_id": "00000000-0000-4000-8000-000000000000"}
        await console(scope, receive, send)

    return answered


@asynccontextmanager
async def browser_with(
    served: Served,
    app: Any,  # noqa: ANN401 - ASGI
    access_token: str,
    person_token: str = "",
    role_id: str = "1",
    user_id: str = "1",
) -> AsyncIterator[httpx.AsyncClient]:
    """Open a browser whose session acts in ``acme`` with this access token, or without in no role.

    Its person is the owner of the organization, unless another's token is given.
    """
    end = served.clock() + HOUR
    token = Token(access_token, end)
    acting = Acting(role_id, "admin", served.acme.account_id, "acme", token)
    person = Token(person_token or served.acme.person_token, end)
    session = ConsoleSession(
        user_id,
        "a@example.org",
        "csrf",
        end,
        person,
        REFRESH_TOKEN,
        acting if access_token else None,
    )
    sealed = CookieJar(served.keyring, URL).seal(COOKIE, session).partition(";")[0]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL) as browser:
        browser.cookies.set(COOKIE, sealed.partition("=")[2], domain=HOST, path="/console")
        yield browser
