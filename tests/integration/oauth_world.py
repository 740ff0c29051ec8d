"""A control plane with real identity: tokens, sessions and the sign-in page, over a database.

The clock is the test's own. Routes of the test's own say who is asking, and let in who may.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlencode

import httpx
from litestar import get
from litestar.di import NamedDependency
from sqlalchemy import text

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.iam.passwords import hash_password
from cloudcore.identity.last_uses import LastUses
from cloudcore.identity.names import iam_crn
from cloudcore.identity.needs import IdentityNeeds
from cloudcore.identity.oauth import authorize_routes, routes
from cloudcore.identity.oidc.provider import Discovery, ProviderClient
from cloudcore.identity.rights.permissions import LoginPermission, Permissions
from cloudcore.identity.rows.accounts import ACCOUNTS, Account
from cloudcore.identity.rows.policies import POLICIES, Attachment, PolicyRow
from cloudcore.identity.rows.roles import ASSIGNMENTS, ROLES, Assignment, Role
from cloudcore.identity.rows.service_accounts import ServiceAccount
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.accounts import no_addition
from cloudcore.identity.services.policies import attach_policy
from cloudcore.identity.services.service_accounts import (
    create_access_key,
    create_service_account,
    new_access_key,
)
from cloudcore.identity.services.users import add_person
from cloudcore.identity.tokens.access_tokens import AccessTokens
from cloudcore.identity.tokens.authentication import BearerAuthenticator
from cloudcore.identity.tokens.signing_keys import SigningKeys
from cloudcore.keyring import Keyring
from cloudcore.resources.routes import handlers_of
from cloudcore.web.app import ControlPlane, Routes, family_routes
from cloudcore.web.context import ControlSettings, Platform, RequestContext
from registry.services.access.bearers import KEY_KINDS
from tests.databases import opened
from tests.passwords import CHEAP

START: Final = 1_800_000_000 * MICROSECONDS
ISSUER: Final = "http://127.0.0.1:5000"
OUT_OF_BAND: Final = "urn:ietf:wg:oauth:2.0:oob"
VERIFIER: Final = "correct-horse-battery-staple_0123456789.~ABC"
CREDENTIALS: Final = {"grant_type": "client_credentials"}
PASSWORD: Final = "a long enough password"
_HASHED: Final = hash_password(PASSWORD, CHEAP)
_HIDDEN: Final = re.compile(r'name="form" value="([^"]*)"')
_CODE: Final = re.compile(r'<output id="code">([^<]*)</output>')


@get("/v1/whoami", opt={"action": None})
async def who_am_i(ctx: NamedDependency[RequestContext]) -> dict[str, Any]:
    assert ctx.caller is not None
    return {**ctx.caller._asdict(), "kind": ctx.caller.kind.value}


@get("/v1/things", opt={"action": "test:ListThings"})
async def list_things(ctx: NamedDependency[RequestContext]) -> dict[str, Any]:
    assert ctx.caller is not None
    ctx.authorize(f"crn:test::{ctx.caller.account_id}:thing/all")
    return {"things": []}


@dataclass(frozen=True)
class Program:
    """A service account with a key pair."""

    account: Account
    id: str
    crn: str
    key_id: str
    """Of the row."""
    access_key_id: str
    secret: str

    @property
    def basic(self) -> dict[str, str]:
        return basic(self.access_key_id, self.secret)

    @property
    def form(self) -> dict[str, str]:
        return {"client_id": self.access_key_id, "client_secret": self.secret}


@dataclass
class World:
    """The control plane, its client, and ways to fill it."""

    app: ControlPlane
    database: Database
    keyring: Keyring
    keys: SigningKeys
    tokens: AccessTokens
    uses: LastUses
    peer: str = "198.51.100.7"
    now: int = START
    tick: int = 0
    """What passes, in microseconds, whenever the time is asked for."""
    cookies: dict[str, str] = field(default_factory=dict)

    async def request(
        self,
        method: str,
        path: str,
        *,
        cookies: dict[str, str] | None = None,
        **options: Any,  # noqa: ANN401 - httpx's
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, client=(self.peer, 1))  # type: ignore[arg-type]
        async with httpx.AsyncClient(
            transport=transport, base_url=ISSUER, cookies=cookies
        ) as client:
            return await client.request(method, path, **options)

    async def token(
        self, form: Mapping[str, str], headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Ask the token endpoint."""
        return await self.request("POST", "/v1/oauth/token", data=form, headers=headers)

    async def token_of(self, program: Program, **form: str) -> str:
        """Return an access token of a program."""
        answer = await self.token(CREDENTIALS | form, program.basic)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    async def redeem(self, code: str, **changes: str) -> httpx.Response:
        """Show a code with all that belongs to it; an empty text leaves a parameter out."""
        form = code_form(code) | changes
        return await self.token({name: value for name, value in form.items() if value})

    async def refresh(self, token: str) -> httpx.Response:
        return await self.token(
            {"grant_type": "refresh_token", "refresh_token": token, "client_id": "cli"}
        )

    async def revoke(self, token: str, headers: dict[str, str] | None = None, **form: str) -> int:
        answer = await self.request(
            "POST", "/v1/oauth/revoke", data={"token": token, **form}, headers=headers
        )
        assert answer.content == b"" or answer.status_code != 200
        return answer.status_code

    async def who(self, token: str) -> httpx.Response:
        return await self.request("GET", "/v1/whoami", headers=bearer(token))

    async def things(self, token: str) -> int:
        return (await self.request("GET", "/v1/things", headers=bearer(token))).status_code

    async def assume(self, token: str, role: str, **fields: object) -> httpx.Response:
        return await self.request(
            "POST", "/v1/assume-role", json={"role": role, **fields}, headers=bearer(token)
        )

    async def open_page(self, **changes: str) -> httpx.Response:
        """Open the sign-in page, as a browser that keeps its cookie."""
        query = authorization_query() | changes
        path = "/v1/oauth/authorize?" + urlencode({k: v for k, v in query.items() if v})
        answer = await self.request("GET", path, cookies=self.cookies)
        self.cookies |= dict(answer.cookies)
        return answer

    async def send_page(self, page: httpx.Response, **fields: str) -> httpx.Response:
        """Fill in a page's form and send it."""
        answer = await self.request(
            "POST",
            "/v1/oauth/authorize",
            data={"form": hidden_of(page), **fields},
            cookies=self.cookies,
        )
        self.cookies |= dict(answer.cookies)
        return answer

    async def sign_in(self, email: str, password: str = PASSWORD) -> str:
        """Return the code that the page shows."""
        answer = await self.send_page(await self.open_page(), email=email, password=password)
        assert answer.status_code == 200, answer.text
        return code_of(answer)

    async def signed_in(self, email: str) -> tuple[str, str]:
        """Return an access token and a refresh token of a person."""
        answer = (await self.redeem(await self.sign_in(email))).json()
        return answer["access_token"], answer["refresh_token"]

    async def add_account(self, handle: str) -> Account:
        account = Account(uuid7(), None, handle, self.now)
        assert await self.database.write(ACCOUNTS.add, account)
        return account

    async def add_program(
        self, account: Account, name: str = "ci", *statements: dict[str, Any]
    ) -> Program:
        """Add a service account with a key and, if there are statements, a policy."""
        made = new_access_key()
        row = ServiceAccount(uuid7(), account.id, name, "", self.now, self.now)
        key = made.row(self.keyring, uuid7(), account.id, row.id, self.now)
        await self.database.write(create_service_account, row)
        await self.database.write(create_access_key, key)
        if statements:
            await self.add_policy(account, *statements, service_account_id=row.id)
        crn = iam_crn(account.id, "service-account", name)
        return Program(account, row.id, crn, key.id, made.access_key_id, made.secret)

    async def add_policy(
        self, account: Account, *statements: dict[str, Any], **on: str
    ) -> Attachment:
        """Add a policy and attach it; return the attachment."""
        said, now = document(*statements), self.now
        row = PolicyRow(uuid7(), account.id, uuid7(), "", said, 1, now, now)
        assert await self.database.write(POLICIES.add, row)
        principal = on.get("service_account_id"), on.get("role_id")
        attachment = Attachment(uuid7(), account.id, row.id, *principal, now)
        return await self.database.write(attach_policy, attachment)

    async def add_role(self, account: Account, name: str, *trusted: str, most: int = 43200) -> Role:
        """Add a role that these principals may assume."""
        trust = document({"effect": "allow", "principals": list(trusted)})
        row = Role(uuid7(), account.id, name, "", trust, most, self.now, self.now)
        assert await self.database.write(ROLES.add, row)
        return row

    async def assign(self, role: Role, user: User) -> None:
        await self.database.write(ASSIGNMENTS.add, Assignment(role.id, user.id, self.now))

    async def add_user(self, email: str, *, one_time: bool = False) -> User:
        user = User(
            uuid7(), email, _HASHED, uuid7(), self.now, self.now, must_change_password=one_time
        )
        return await self.database.write(add_person, user)

    async def run(self, statement: str) -> None:
        """Run a statement of SQL that has no service of its own here."""

        def change(tx: Connection) -> None:
            tx.execute(Statement(text(statement)))

        await self.database.write(change)

    def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * MICROSECONDS)


@asynccontextmanager
async def open_world(url: str) -> AsyncIterator[World]:
    """Open a world, with a key to sign with, over the database at `url`."""
    async with opened(url) as database:
        world = make_world(database)
        await world.keys.refresh()
        yield world


@cache
def _routes() -> Routes:
    """Return the routes of every world, made once."""
    return Routes(
        [
            who_am_i,
            list_things,
            family_routes("iam", handlers_of(routes, authorize_routes)),
        ],
        routes.ERROR_SHAPES,
    )


def make_world(
    database: Database, issuer: str = ISSUER, internal_origins: Sequence[str] = ()
) -> World:
    """Return a world; its keys are not made yet."""
    world: World
    provider_client = ProviderClient(internal_origins)

    def clock() -> int:
        world.now += world.tick
        return world.now

    keyring = Keyring(b"k" * 32)
    keys = SigningKeys(database, keyring, clock, KEY_KINDS)
    tokens = AccessTokens(keys, issuer, clock)
    uses = LastUses(database, clock)
    platform = Platform(
        database=database,
        clock=clock,
        new_id=uuid7,
        keyring=keyring,
        authenticator=BearerAuthenticator(database, tokens, Permissions(database), uses, clock),
        settings=ControlSettings(auth_url=issuer),
    )
    needs = {
        "iam": IdentityNeeds(
            tokens,
            keys,
            uses,
            issuer,
            provider_client,
            Discovery(provider_client),
            no_addition,
            lambda account_id: LoginPermission("test:LogIn", f"crn:test::{account_id}:login/own"),
        )
    }
    app = ControlPlane(_routes(), platform, needs=needs)
    world = World(app, database, keyring, keys, tokens, uses)
    return world


def may(*actions: str, resource: str = "*", effect: str = "allow") -> dict[str, Any]:
    """Return a statement of an identity policy."""
    return {"effect": effect, "actions": list(actions), "resources": [resource]}


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"version": "1", "statements": list(statements)})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(client_id: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{client_id}:{secret}".encode()).decode()}


def challenge(verifier: str = VERIFIER) -> str:
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


def authorization_query() -> dict[str, str]:
    """Return what a command asks the page for."""
    return {
        "response_type": "code",
        "client_id": "cli",
        "redirect_uri": OUT_OF_BAND,
        "code_challenge": challenge(),
        "code_challenge_method": "S256",
        "state": "af0ifjsldkj",
    }


def code_form(code: str) -> dict[str, str]:
    """Return what a command sends with a code."""
    return {
        "grant_type": "authorization_code",
        "code": code,
        "code_verifier": VERIFIER,
        "client_id": "cli",
        "redirect_uri": OUT_OF_BAND,
    }


def hidden_of(page: httpx.Response) -> str:
    found = _HIDDEN.search(page.text)
    assert found, page.text
    return html.unescape(found[1])


def code_of(page: httpx.Response) -> str:
    found = _CODE.search(page.text)
    assert found, page.text
    return html.unescape(found[1])
