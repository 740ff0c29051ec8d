"""A registry in this process: real database, real store, our clock, and no socket between.

`open_registry` puts services and data plane over a database URL and a store; its `Client` speaks
ASGI to the data plane with raw paths, and checks of every answer what every answer must have.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import CommitMark, Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.keyring import Keyring
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.services import KeyMaker
from cloudcore.kms.vault import Vault
from cloudcore.serving.asgi import Message, Scope
from registry.blobstore.store import BlobStore
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.distribution.errors import TABLE
from registry.metadata.repositories.repository import (
    add_account,
    find_account,
    find_or_add_repository,
    find_repository,
)
from registry.metadata.tables import repositories
from registry.services.blobs.upload_leases import Leases
from registry.services.changes import RegistryHost
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys
from registry.services.images.pulls import PullLog
from registry.settings.groups import Limits

START: Final = 1_750_000_000 * MICROSECONDS
ZERO_COPY: Final[Mapping[str, object]] = {"http.response.zerocopysend": {}}

_EXCLUDE: Final = Statement(
    repositories.update()
    .where(repositories.c.id == bindparam("id_"))
    .values(immutable_tag_exclusions=bindparam("patterns"))
)

Body = bytes | list[bytes] | AsyncIterable[bytes]


@dataclass
class ManualClock:
    """A clock that stands still but for a millisecond a look, so that ids sort by creation."""

    now: int = START

    def __call__(self) -> int:
        """Return the time in microseconds."""
        self.now += 1000
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * MICROSECONDS)


class Answer(NamedTuple):
    """What came back for one request; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - a document
        """Return the body as the JSON document it is."""
        return json.loads(self.body)

    @property
    def codes(self) -> list[str]:
        """Return the error codes of the body, in order."""
        return [item["code"] for item in self.json()["errors"]]


class Cut(Exception):
    """Raised by a body's iterator where the client hangs up."""


class Client:
    """Asks a data plane; `extensions` are those of the server we play.

    An answer of 500 is a bug and fails the test, unless the test `expects_bugs`.
    """

    def __init__(
        self,
        app: DataPlane,
        extensions: Mapping[str, object] | None = None,
        *,
        expects_bugs: bool = False,
    ) -> None:
        self._app = app
        self._extensions = dict(extensions or {})
        self._expects_bugs = expects_bugs

    async def request(
        self,
        method: str,
        target: str | bytes,
        body: Body = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request and return its answer, once that is found well formed."""
        raw = target.encode() if isinstance(target, str) else target
        path, _, query = raw.partition(b"?")
        given = {"content-length": str(len(body))} if isinstance(body, bytes) and body else {}
        given |= {name.lower(): value for name, value in (headers or {}).items()}
        scope: Scope = {
            "type": "http",
            "method": method,
            "raw_path": path,
            "path": path.decode("latin-1"),
            "query_string": query,
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items()],
            "extensions": self._extensions,
        }
        cycle = _RequestCycle(_parts(body), comes_at_once=isinstance(body, bytes))
        await self._app(scope, cycle.receive, cycle.send)
        answer = cycle.answer()
        check_form(method, answer)
        assert answer.status != 500 or self._expects_bugs, answer.body
        return answer


@dataclass
class _RequestCycle:
    """The server's side of one request."""

    parts: AsyncIterator[bytes]
    comes_at_once: bool
    messages: list[Message] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    async def receive(self) -> Message:
        try:
            part = await anext(self.parts)
        except StopAsyncIteration:
            return {"type": "http.request", "body": b"", "more_body": False}
        except Cut:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": not self.comes_at_once}

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        if message["type"] == "http.response.body":
            self.body += message["body"]
        elif message["type"] == "http.response.zerocopysend":
            self.body += os.pread(message["file"], message["count"], message["offset"])

    def answer(self) -> Answer:
        start, *rest = self.messages
        assert start["type"] == "http.response.start"
        assert rest, "the answer never ended"
        assert not rest[-1].get("more_body", False)
        headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        assert len(headers) == len(start["headers"]) or "warning" in headers
        return Answer(start["status"], headers, bytes(self.body))


def check_form(method: str, answer: Answer) -> None:
    """Check what every answer must have: a version, an id, its length, one shape of errors."""
    assert answer.headers["docker-distribution-api-version"] == "registry/2.0"
    UUID(answer.headers["x-request-id"])
    if answer.status not in (204, 304):
        length = int(answer.headers["content-length"])
        assert len(answer.body) == (0 if method == "HEAD" else length)
    if answer.status >= 400 and method != "HEAD":
        assert answer.headers["content-type"] == "application/json"
        document = answer.json()
        assert set(document) == {"errors"}
        for item in document["errors"]:
            assert set(item) == {"code", "message", "detail"}
            assert item["code"] in {code for _, code in TABLE.values()}
            assert item["message"]


async def _parts(body: Body) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        if body:
            yield body
    elif isinstance(body, list):
        for part in body:
            yield part
    else:
        async for part in body:
            yield part


async def hang_up(*parts: bytes) -> AsyncIterator[bytes]:
    """Send `parts` and leave before the end of the body."""
    for part in parts:
        yield part
    raise Cut


class Held:
    """A body that stops after its first part until it is let go; `begun` says it was asked for."""

    def __init__(self, first: bytes, *rest: bytes) -> None:
        self._first = first
        self._rest = rest
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the parts, with the stop."""
        yield self._first
        self.begun.set()
        await self.go_on.wait()
        for part in self._rest:
            yield part


@dataclass(frozen=True)
class Registry:
    """A registry of one account, and what surrounds it."""

    ctx: ServiceContext
    app: DataPlane
    client: Client
    clock: ManualClock
    account: str
    """The handle of the account."""

    async def account_id(self, handle: str = "") -> str:
        """Return the id of the account, or of another one."""
        found = await self.ctx.database.read(find_account, handle or self.account)
        assert found is not None
        return found.id

    async def add_immutable(self, name: str, *exclusions: str) -> None:
        """Make a repository whose tags do not move, but for those that match `exclusions`."""
        await self.ctx.database.write(_add_immutable, self.account, name, exclusions, self.clock())


def _add_immutable(
    tx: Connection, handle: str, name: str, exclusions: tuple[str, ...], now: int
) -> None:
    account = find_account(tx, handle)
    assert account is not None
    assert find_repository(tx, handle, name) is None
    made = find_or_add_repository(tx, uuid7(now), account, name, now, tag_mutability="immutable")
    tx.execute(_EXCLUDE, id_=made.id, patterns=json.dumps(exclusions))


IN_FILES: Final = Limits(inline_max_bytes=0)
PROVIDERS: Final = Providers(EmbeddedProvider(Keyring(bytes(32))))


async def add_platform_keys(database: Database, now: int) -> None:
    """Add the platform keys of all accounts that have none."""
    await KeyMaker(PROVIDERS, "local", uuid7).add_missing_platform_keys(database, now)


@asynccontextmanager
async def open_registry(
    url: str,
    store: BlobStore,
    account: str = "dev",
    *,
    clock: ManualClock | None = None,
    limits: Limits | None = None,
    around: Callable[[Database], Database] = lambda database: database,
    leases: Leases | None = None,
    seals: bool = False,
    mark: CommitMark | None = None,
) -> AsyncIterator[Registry]:
    """Open a registry over a migrated database and a store; `around` may wrap the database.

    Without `limits`, small blobs are in the store too, where tests look for them. If it `seals`,
    the account has a platform key. Workers of one server have the same `mark`.
    """
    clock = clock or ManualClock()
    opened = open_database(url, mark)
    try:
        await opened.write(add_account, uuid7(clock()), account, clock())
        if seals:
            await add_platform_keys(opened, clock())
        database = around(opened)
        pulls = PullLog(database, clock)
        made = ServiceContext(
            database=database,
            reader=store,
            writer=store,
            clock=clock,
            new_id=lambda: uuid7(clock()),
            limits=limits or IN_FILES,
            pulls=pulls,
            registry_host=RegistryHost("local", "registry.example"),
            leases=leases or Leases(uuid7()),
            data_keys=DataKeys(Vault(database, PROVIDERS, clock)) if seals else None,
            seals=seals,
        )
        app = DataPlane(made, OpenAccess(account))
        yield Registry(made, app, Client(app), clock, account)
    finally:
        await opened.close()
