"""A control plane over the family of things, with a clock and principals of the test's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_network
from typing import Any, Final
from uuid import UUID

import httpx
from litestar.handlers import HTTPRouteHandler
from sqlalchemy import create_engine

from cloudcore.audit.log import AuditLog
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unauthenticated
from cloudcore.family import Family, vocabulary
from cloudcore.iam.policy import Policy, PolicyKind, policy_of
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.keyring import Keyring
from cloudcore.web.app import ControlPlane, Routes
from cloudcore.web.context import ControlSettings, Origin, Platform
from cloudcore.web.idempotency import idempotency_records
from cloudcore.web.rate_limits import Budget, rate_windows
from tests.databases import opened
from tests.things import FAULTY, HANDLERS, THINGS, things_metadata

START: Final = 1_800_000_000 * MICROSECONDS
ACCOUNT: Final = "01890000-0000-7000-8000-000000000001"
OTHER_ACCOUNT: Final = "01890000-0000-7000-8000-000000000002"
ALLOW_ALL: Final = {"effect": "allow", "actions": ["*"], "resources": ["*"]}


def may(*statements: dict[str, Any]) -> Sequence[Policy]:
    """Return identity policies of these statements."""
    if not statements:
        return []
    return [policy_of({"version": "1", "statements": list(statements)}, PolicyKind.IDENTITY)]


@dataclass
class TokenBook:
    """Tokens, each with whom it stands for and what they may do."""

    holders: dict[str, tuple[Principal, Sequence[Policy]]] = field(default_factory=dict)

    def add(self, token: str, account_id: str = ACCOUNT, *statements: dict[str, Any]) -> None:
        """Make a service account and its token; by default it may do everything."""
        identity = uuid7()
        crn = f"crn:iam::{account_id}:service-account/{token}"
        kind = PrincipalKind.SERVICE_ACCOUNT
        principal = Principal(kind, identity, crn, account_id, None, None, uuid7(), START * 2)
        self.holders[token] = principal, may(*statements or (ALLOW_ALL,))

    def restrict(self, token: str, *statements: dict[str, Any]) -> None:
        """Leave a token's holder these statements only."""
        self.holders[token] = self.holders[token][0], may(*statements)

    async def authenticate(self, bearer: str, origin: Origin) -> Principal:
        if bearer not in self.holders:
            raise Unauthenticated("the token is not valid")
        return self.holders[bearer][0]

    async def policies_of(self, principal: Principal) -> Sequence[Policy]:
        return next(may for holder, may in self.holders.values() if holder == principal)

    def organizations_of(self, principal: Principal, tx: Connection) -> Sequence[str]:
        return ()


_SETTINGS: Final = ControlSettings()


async def send(
    app: ControlPlane,
    method: str,
    path: str,
    body: object = None,
    *,
    token: str | None = "writer",
    key: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
    peer: str = "198.51.100.7",
) -> httpx.Response:
    """Send a request; `body` is bytes as they are, anything else as JSON."""
    sent = list(headers)
    if token is not None:
        sent.append(("Authorization", f"Bearer {token}"))
    if key is not None:
        sent.append(("Idempotency-Key", key))
    content = body if isinstance(body, bytes) else b""
    if body is not None and not isinstance(body, bytes):
        content = json.dumps(body).encode()
    if content and not any(name.lower() == "content-type" for name, _ in sent):
        sent.append(("Content-Type", "application/json"))
    transport = httpx.ASGITransport(app, client=(peer, 1))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in sent]
        return await client.request(method, path, content=content, headers=raw)


def plane(
    routes: Routes,
    database: Database,
    clock: Callable[[], int],
    families: Sequence[Family[Any]],
    needs: Mapping[str, object] | None = None,
    settings: ControlSettings = _SETTINGS,
    auditor: AuditLog | None = None,
    new_id: Callable[[], str] = uuid7,
) -> tuple[ControlPlane, TokenBook]:
    """Return a control plane in which `writer` may do everything in its account.

    `stranger` may so in another one; policies may name what families have.
    """
    tokens = TokenBook()
    tokens.add("writer")
    tokens.add("stranger", OTHER_ACCOUNT)
    platform = Platform(
        database=database,
        clock=clock,
        new_id=new_id,
        keyring=Keyring(b"k" * 32),
        authenticator=tokens,
        settings=settings,
        auditor=auditor,
    )
    of = vocabulary(families)
    return ControlPlane(routes, platform, needs=needs or {}, vocabulary=of), tokens


@dataclass
class World:
    """A control plane over the family, and the client in front of it."""

    app: ControlPlane
    database: Database
    tokens: TokenBook
    now: int = START
    peer: str = "198.51.100.7"

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "writer",
        key: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> httpx.Response:
        """Send a request, as `send` does."""
        of = {"token": token, "key": key, "headers": headers, "peer": self.peer}
        return await send(self.app, method, path, body, **of)  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> None:
        """Let the clock of the platform go on."""
        self.now += int(seconds * MICROSECONDS)


TIGHT: Final = Budget(limit=3, window_seconds=60)


@dataclass(frozen=True)
class Options:
    """How a world differs from the plain one."""

    faulty: bool = False
    budget: Budget = TIGHT
    proxies: Sequence[str] = ()
    more: Sequence[HTTPRouteHandler] = ()
    wrap: Callable[[Database], Database] = lambda database: database


PLAIN: Final = Options()


@asynccontextmanager
async def open_world(url: str, options: Options = PLAIN) -> AsyncIterator[World]:
    """Open a world over the database at `url`."""
    make_tables(url)
    async with opened(url) as database:
        yield make_world(options.wrap(database), options)


@cache
def _routes() -> Routes:
    """Return the routes of every world, made once."""
    return Routes(HANDLERS)


def make_world(database: Database, options: Options = PLAIN) -> World:
    """Return a world in which `writer` may do everything in its account."""
    world: World
    settings = ControlSettings(
        budget=options.budget,
        trusted_proxies=tuple(ip_network(proxy) for proxy in options.proxies),
    )
    more = (*(FAULTY if options.faulty else ()), *options.more)
    routes = Routes([*HANDLERS, *more]) if more else _routes()
    of = routes, database, lambda: world.now, [THINGS]
    app, tokens = plane(*of, settings=settings)
    world = World(app, database, tokens)
    return world


def make_tables(url: str) -> None:
    """Make the tables of the family, and those of the kernel where no migration has."""
    with raw_engine(url) as engine:
        for table in (idempotency_records, rate_windows):
            table.create(engine, checkfirst=True)
        things_metadata.create_all(engine)


@contextmanager
def raw_engine(url: str) -> Iterator[Any]:
    """Open the database in the plain way, beside the product's own."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        yield engine
    finally:
        engine.dispose()


def count_rows(url: str, table: str) -> int:
    """Return how many rows a table has, as another client of the database sees it."""
    with raw_engine(url) as engine, engine.connect() as connection:
        counted: int = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar()
        return counted


def assert_envelope(
    answer: httpx.Response, status: int, code: str, *, about: object = ""
) -> dict[str, object]:
    """Check a refusal and its form, and return the error; a failure shows the case `about`."""
    assert answer.status_code == status, about
    assert answer.headers["content-type"] == "application/json", about
    error: dict[str, object] = answer.json()["error"]
    assert error["code"] == code, about
    assert set(error) - {"params"} == {"code", "message", "request_id"}
    assert str(UUID(str(error["request_id"]))) == error["request_id"]
    assert answer.headers.get_list("x-request-id") == [error["request_id"]]
    return error
