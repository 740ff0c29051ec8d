"""A control plane of identity in this process: two tenants, real rows, real policies, no socket.

Tokens stand for principals by a table; who may do what comes from the database, as it does in
service. `acme` is the account that most tests act in; `globex` is the stranger's.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import httpx

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unauthenticated
from cloudcore.family import vocabulary
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import Founders, Principal, PrincipalKind
from cloudcore.identity.audit import organizations_of
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rights.permissions import LoginPermission, Permissions
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.organizations import MEMBERS, ORGANIZATIONS, Membership, Organization
from cloudcore.identity.rows.policies import ATTACHMENTS, Attachment, PolicyRow
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS, ServiceAccount
from cloudcore.identity.rows.sessions import Session, add_session
from cloudcore.identity.rows.users import User
from cloudcore.identity.runtime import HANDLERS
from cloudcore.identity.services.accounts import Founder, no_addition, open_account
from cloudcore.identity.services.policies import attach_policy, create_policy
from cloudcore.identity.services.service_accounts import create_service_account
from cloudcore.identity.services.users import add_person
from cloudcore.keyring import Keyring
from cloudcore.web.app import ControlPlane, Routes, family_routes
from cloudcore.web.context import ControlSettings, Origin, Platform
from registry.composition.families import FAMILIES
from tests.databases import opened
from tests.passwords import KEPT_PASSWORD

START: Final = 1_800_000_000 * MICROSECONDS
ALLOW_ALL: Final = {"effect": "allow", "actions": ["*"], "resources": ["*"]}


class Tenant(NamedTuple):
    """An organization with an account, an owner and an administering program."""

    organization_id: str
    account_id: str
    person: User
    role_id: str
    policy_id: str
    attachment_id: str


@dataclass
class World:
    """The application, and the client in front of it."""

    database: Database
    keyring: Keyring
    permissions: Permissions
    now: int = START
    principals: dict[str, Principal] = field(default_factory=dict)
    app: ControlPlane = field(init=False)
    acme: Tenant = field(init=False)
    globex: Tenant = field(init=False)

    async def authenticate(self, bearer: str, origin: Origin) -> Principal:
        if bearer not in self.principals:
            raise Unauthenticated("the token is not valid")
        return self.principals[bearer]

    async def policies_of(self, principal: Principal) -> Sequence[Policy]:
        return await self.permissions.policies_of(principal)

    def organizations_of(self, principal: Principal, tx: Connection) -> Sequence[str]:
        return organizations_of(principal.id, tx)

    def clock(self) -> int:
        self.now += 1000  # a millisecond, by which ids are ordered
        return self.now

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "admin",
        key: str | None = None,
    ) -> httpx.Response:
        """Send a request and check what every answer has."""
        headers = {"Authorization": f"Bearer {token}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = b"" if body is None else json.dumps(body).encode()
        transport = httpx.ASGITransport(self.app, client=("198.51.100.7", 1))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.request(method, path, content=content, headers=headers)
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]
        return answer

    async def status(
        self, method: str, path: str, body: object = None, *, token: str = "admin"
    ) -> int:
        """Send a request, and return the status of its answer."""
        return (await self.ask(method, path, body, token=token)).status_code

    async def show(self, path: str, *, token: str = "admin") -> Any:  # noqa: ANN401
        """Return the record or the list of records at a path."""
        answer = await self.ask("GET", path, token=token)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        (name,) = found.keys() - {"meta"}
        return found[name]

    async def make(self, path: str, body: object, *, token: str = "admin") -> Any:  # noqa: ANN401
        """Create something and return its record."""
        answer = await self.ask("POST", path, body, token=token)
        assert answer.status_code == 201, answer.text
        (record,) = answer.json().values()
        return record

    async def invite(
        self, email: str, *, role: str = "member", organization: str = "", by: str = "person"
    ) -> str:
        """Invite an address to an organization (the first tenant's); return the code."""
        path = f"/v1/organizations/{organization or self.acme.organization_id}/invitations"
        made = await self.make(path, {"email": email, "role": role}, token=by)
        code: str = made["code"]
        return code

    async def accept(self, code: str, *, token: str, organization: str = "") -> httpx.Response:
        """Bring the code of an invitation."""
        path = f"/v1/organizations/{organization or self.acme.organization_id}/accept"
        return await self.ask("POST", path, {"code": code}, token=token)

    async def join(
        self, token: str, *, role: str = "member", organization: str = "", by: str = "person"
    ) -> None:
        """Let the person of a token join an organization."""
        email = f"{token}@example.org"
        code = await self.invite(email, role=role, organization=organization, by=by)
        accepted = await self.accept(code, token=token, organization=organization)
        assert accepted.status_code == 200, accepted.text

    async def program(
        self, token: str, *statements: dict[str, Any], tenant: Tenant | None = None
    ) -> ServiceAccount:
        """Make a service account whose policy has these statements, and a token for it."""
        account_id = (tenant or self.acme).account_id
        return await self.database.write(self._add_program, token, account_id, statements)

    def _add_program(
        self, tx: Connection, name: str, account_id: str, statements: Sequence[dict[str, Any]]
    ) -> ServiceAccount:
        now = self.clock()
        made = ServiceAccount(uuid7(now), account_id, name, "", now, now)
        create_service_account(tx, made)
        if statements:
            policy = PolicyRow(uuid7(now), account_id, f"of-{name}", "", "", 1, now, now)
            document = {"version": "1", "statements": list(statements)}
            create_policy(tx, policy, document)
            attach_policy(tx, Attachment(uuid7(now), account_id, policy.id, made.id, None, now))
        crn = iam_crn(account_id, "service-account", name)
        of = made.id, crn, account_id, None, None, uuid7(), START * 2
        self.principals[name] = Principal(PrincipalKind.SERVICE_ACCOUNT, *of)
        return made

    async def role_session(self, token: str) -> None:
        """Let the first tenant's person act in the role `admin`."""
        account_id, role_id = self.acme.account_id, self.acme.role_id
        parent = self.principals["person"].sid
        session = Session(uuid7(), "role", self.now, START * 2, role_id=role_id, parent_sid=parent)
        await self.database.write(add_session, session)
        crn = iam_crn(account_id, "role", "admin")
        of = role_id, crn, account_id, None, session.id, uuid7(), START * 2
        self.principals[token] = Principal(PrincipalKind.ROLE_SESSION, *of)

    async def add_user(self, token: str, email: str, organization: str, by: str) -> dict[str, Any]:
        """Let an owner add a person to an organization, and make a token for the person."""
        body = {"email": email, "organization": organization}
        made: dict[str, Any] = await self.make("/v1/users", body, token=by)
        self.principals[token] = self.principals["person"]._replace(
            id=made["id"], crn=made["crn"], organization_id=made["crn"].split(":")[3], sid=None
        )
        return made

    async def person(self, token: str) -> User:
        """Make a person without a part in any organization, and a token for it."""
        return await self.database.write(self._add_person, token)

    def _add_person(self, tx: Connection, token: str) -> User:
        now = self.clock()
        user = User(
            id=uuid7(now),
            email=f"{token}@example.org",
            password=KEPT_PASSWORD,
            must_change_password=False,
            organization_id=uuid7(now),
            status="active",
            created_at=now,
            updated_at=now,
        )
        add_person(tx, user)
        session = Session(uuid7(now), "user", now, START * 2, user_id=user.id)
        add_session(tx, session)
        crn = iam_crn(user.organization_id, "user", user.id)
        of = user.id, crn, None, user.organization_id, session.id, uuid7(), START * 2
        self.principals[token] = Principal(PrincipalKind.USER, *of)
        return user

    async def tenant(self, handle: str, person: str, program: str) -> Tenant:
        """Make an organization with an account, its owner and a program that may do everything."""
        return await self.database.write(self._add_tenant, handle, person, program)

    def _add_tenant(self, tx: Connection, handle: str, person: str, program: str) -> Tenant:
        owner = self._add_person(tx, person)
        now = self.clock()
        organization = Organization(
            id=uuid7(now), name=handle, is_personal=False, created_at=now, updated_at=now
        )
        ORGANIZATIONS.add(tx, organization)
        MEMBERS.add(tx, Membership(organization.id, owner.id, "owner", now))
        account = Account(uuid7(now), organization.id, handle, now)
        role_id, policy_id, attachment_id = ids = [uuid7(now) for _ in range(3)]
        founder = Founder(iam_crn(owner.organization_id, "user", owner.id), owner.id)
        open_account(tx, account, founder, iter(ids).__next__)
        made = self._add_program(tx, program, account.id, ())
        ATTACHMENTS.add(tx, Attachment(uuid7(now), account.id, policy_id, made.id, None, now))
        assert SERVICE_ACCOUNTS.find(tx, account.id, made.id)
        return Tenant(organization.id, account.id, owner, role_id, policy_id, attachment_id)


@asynccontextmanager
async def open_world(
    url: str,
    founders: Founders = "anyone",
    *,
    wrap: Callable[[Database], Database] = lambda database: database,
) -> AsyncIterator[World]:
    """Open a world over the (wrapped) database at `url`."""
    async with opened(url) as database:
        yield await _make_world(wrap(database), founders)


@cache
def _routes() -> Routes:
    """Return the routes of every world, made once."""
    return Routes([family_routes("iam", HANDLERS)])


def _login_permission(account_id: str) -> LoginPermission:
    return LoginPermission("test:LogIn", f"crn:test::{account_id}:login/own")


async def _make_world(database: Database, founders: Founders) -> World:
    world = World(database, Keyring(b"k" * 32), Permissions(database))
    platform = Platform(
        database=database,
        clock=world.clock,
        new_id=lambda: uuid7(world.clock()),
        keyring=world.keyring,
        authenticator=world,
        settings=ControlSettings(founders=founders),
    )
    # Of what identity needs, these routes take only these.
    needs = {
        "iam": SimpleNamespace(prepare_account=no_addition, login_permission=_login_permission)
    }
    vocabulary_ = vocabulary(FAMILIES)
    world.app = ControlPlane(_routes(), platform, needs=needs, vocabulary=vocabulary_)
    world.acme = await world.tenant("acme", "person", "admin")
    world.globex = await world.tenant("globex", "outsider", "stranger")
    return world
