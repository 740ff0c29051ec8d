"""A whole install in this process: both planes on one database, tenants, programs and a clock.

`open_install` is ``entrepot serve`` with the routes of the registry, over a store in memory.
Requests are spoken over ASGI by httpx, from an address and port the test chooses, since a
connection is told by them.
"""

from __future__ import annotations

import atexit
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import httpx

from cloudcore import base64url
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.iam.principal import Principal
from cloudcore.iam.service_roles import service_crn
from cloudcore.identity.needs import SIGNING_KEYS, TOKENS
from cloudcore.identity.rows.accounts import ACCOUNTS, OWN_ACCOUNT, Account
from cloudcore.identity.rows.policies import Attachment, PolicyRow
from cloudcore.identity.rows.roles import Role
from cloudcore.identity.rows.service_accounts import ServiceAccount
from cloudcore.identity.rows.sessions import Session, add_session
from cloudcore.identity.services import policies, roles, service_accounts
from cloudcore.identity.tokens.access_tokens import AccessTokens
from cloudcore.identity.tokens.authentication import BearerAuthenticator
from cloudcore.identity.tokens.signing_keys import SigningKeys
from cloudcore.keyring import Keyring
from cloudcore.kms.family import KMS
from cloudcore.kms.needs import KmsNeeds
from cloudcore.ports import KEYRING, Opening, known
from cloudcore.serving.dispatch import Application
from cloudcore.web.context import AUTHENTICATOR, Origin
from registry.composition.main import PlaneApplications, Registry
from registry.composition.needs import BEARERS, SERVICES
from registry.composition.planes import dispatcher
from registry.composition.serve import SERVE
from registry.metadata.repositories.repository import NewRepository
from registry.services.access.logins import RefusedLogin, mint_login, new_password
from registry.services.access.tokens import BearerTokens
from registry.services.context import ServiceContext
from registry.services.repositories.details import create_repository
from registry.services.repositories.policies import put_resource_policy
from registry.settings.groups import Limits
from registry.settings.settings import Settings
from tests.inprocess import IN_FILES, ManualClock
from tests.memory_store import MemoryStore

REGION: Final = "local"
HOST: Final = "registry.test"
URL: Final = f"http://{HOST}"

Statement = dict[str, Any]
ALLOW_ALL: Final[Statement] = {"effect": "allow", "actions": ["*"], "resources": ["*"]}


def allow(*actions: str, on: str = "*") -> Statement:
    """Return an identity statement that allows actions, on a resource or all."""
    return {"effect": "allow", "actions": list(actions), "resources": [on]}


def deny(*actions: str, on: str = "*") -> Statement:
    """Return an identity statement that denies actions, on a resource or all."""
    return {**allow(*actions, on=on), "effect": "deny"}


def let(*principals: str, actions: Sequence[str] = ("registry:PullImage",)) -> Statement:
    """Return a statement of a resource policy that lets principals do actions."""
    return {"effect": "allow", "principals": list(principals), "actions": list(actions)}


def refuse(*principals: str, actions: Sequence[str] = ("registry:PullImage",)) -> Statement:
    """Return a statement of a resource policy that denies principals actions."""
    return {**let(*principals, actions=actions), "effect": "deny"}


def document(*statements: Statement) -> dict[str, Any]:
    """Return a policy document."""
    return {"version": "1", "statements": list(statements)}


def trust(*principals: str) -> dict[str, Any]:
    """Return the trust policy of a role that these principals may assume."""
    return document({"effect": "allow", "principals": list(principals)})


@dataclass(frozen=True)
class Program:
    """A service account or a role session, with the credentials it has."""

    account: Account
    id: str
    crn: str
    policy_id: str
    attachment_id: str
    key_id: str | None
    """Row of the access key, of a service account."""
    sid: str | None
    """Session, of a role."""
    access_token: str
    """For the control plane."""


@dataclass
class Install:
    """What the tests hold of an install."""

    database: Database
    clock: ManualClock
    app: Application
    tokens: BearerTokens
    ctx: ServiceContext
    keyring: Keyring
    keys: SigningKeys
    access_tokens: AccessTokens
    authenticator: BearerAuthenticator
    kms: KmsNeeds
    opening: Opening

    def connect(self, port: int = 40_000, address: str = "192.0.2.7") -> httpx.AsyncClient:
        """Return a connection from an address and port."""
        transport = httpx.ASGITransport(self.app, client=(address, port))
        return httpx.AsyncClient(transport=transport, base_url=URL)

    async def add_account(self, handle: str) -> Account:
        """Add an account with nobody in it."""
        account = Account(uuid7(), None, handle, self.clock())
        add_platform_key = await self.kms.maker.prepare_platform_key(account.id, self.clock())

        def add(tx: Connection) -> None:
            ACCOUNTS.add(tx, account)
            add_platform_key(tx)

        await self.database.write(add)
        return account

    async def suspend_account(self, account: Account) -> None:
        """Suspend an account."""
        await self.database.write(OWN_ACCOUNT.save, account._replace(status="suspended"))

    async def add_program(
        self, account: Account, name: str, *statements: Statement, policy: str = ""
    ) -> Program:
        """Add a service account with an access key, and a policy of these statements."""
        now = self.clock()
        made = ServiceAccount(uuid7(), account.id, name, "", now, now)
        await self.database.write(service_accounts.create_service_account, made)
        key = service_accounts.new_access_key()
        row = key.row(self.keyring, uuid7(), account.id, made.id, now)
        await self.database.write(service_accounts.create_access_key, row)
        policy_id, attachment_id = await self.attach(
            account, policy or name, statements, service_account_id=made.id
        )
        crn = f"crn:iam::{account.id}:service-account/{name}"
        token = self.access_tokens.issue(
            crn,
            uuid7(),
            now + 43_200 * MICROSECONDS,
            account_id=account.id,
            access_key_id=row.access_key_id,
        )
        return Program(account, made.id, crn, policy_id, attachment_id, row.id, None, token)

    async def add_role_session(
        self,
        account: Account,
        name: str,
        *statements: Statement,
        source: Program | None = None,
        policy: str = "",
        service: str = "",
    ) -> Program:
        """Add a role with a policy of these statements, and a session that assumed it.

        With a `service` of the platform, it trusts that.
        """
        now = self.clock()
        trusted = account.id if source is None else source.account.id
        if service:
            trusted = service_crn(service)
        role = Role(uuid7(), account.id, name, "", "", 43_200, now, now)
        await self.database.write(roles.create_role, role, trust(trusted))
        policy_id, attachment_id = await self.attach(
            account, f"{policy or name}-role", statements, role_id=role.id
        )
        session = Session(
            id=uuid7(),
            kind="role",
            created_at=now,
            expires_at=now + 3600 * MICROSECONDS,
            role_id=role.id,
            source_crn=None if source is None else source.crn,
            source_access_key_id=None if source is None else source.key_id,
        )
        await self.database.write(add_session, session)
        crn = f"crn:iam::{account.id}:role/{name}"
        token = self.access_tokens.issue(
            crn, uuid7(), session.expires_at, account_id=account.id, sid=session.id
        )
        return Program(account, role.id, crn, policy_id, attachment_id, None, session.id, token)

    async def attach(
        self,
        account: Account,
        name: str,
        statements: Sequence[Statement],
        *,
        service_account_id: str | None = None,
        role_id: str | None = None,
    ) -> tuple[str, str]:
        """Give a principal a policy; without statements, one about nothing of ours."""
        now = self.clock()
        row = PolicyRow(uuid7(), account.id, name, "", "", 1, now, now)
        said = document(*(statements or (allow("storage:GetObject"),)))
        await self.database.write(policies.create_policy, row, said)
        attachment = Attachment(uuid7(), account.id, row.id, service_account_id, role_id, now)
        await self.database.write(policies.attach_policy, attachment)
        return row.id, attachment.id

    async def say(self, program: Program, *statements: Statement) -> None:
        """Replace what a program's policy says."""
        await self.database.write(
            policies.update_policy,
            program.account.id,
            program.policy_id,
            {"document": document(*statements)},
            self.clock(),
        )

    async def add_repository(self, account: Account, name: str, *statements: Statement) -> str:
        """Add a repository, with a policy of these statements if there are any."""
        new = NewRepository(name, None, {}, "mutable", [])
        change = self.ctx.change_by("")
        made = await self.database.write(create_repository, account.id, uuid7(), new, change)
        if statements:
            await self.share(made.id, account, *statements)
        return made.id

    async def share(self, repository_id: str, account: Account, *statements: Statement) -> None:
        """Give a repository a policy."""
        await self.database.write(
            put_resource_policy, repository_id, account.id, document(*statements), self.clock()
        )

    async def login(self, program: Program) -> str:
        """Return a password that a program minted."""
        principal = await self.principal(program)
        password = new_password()
        await self.database.write(mint_login, principal, uuid7(), password, self.clock())
        return password

    async def principal(self, program: Program) -> Principal:
        """Return the principal of a program's access token."""
        return await self.authenticator.authenticate(program.access_token, Origin("", None))

    async def exchange(self, password: str | None, *scopes: str) -> str:
        """Return a bearer for these scopes."""
        async with self.connect() as client:
            answer = await client.get(
                "/v2/token",
                params=httpx.QueryParams([("scope", scope) for scope in scopes]),
                headers=basic(password) if password else {},
            )
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["token"]
        return token


def basic(password: str, username: str = "token") -> dict[str, str]:
    """Return the header of a Basic credential."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def bearer(token: str) -> dict[str, str]:
    """Return the header of a bearer token."""
    return {"Authorization": f"Bearer {token}"}


def claims_of(token: str) -> dict[str, Any]:
    """Return what a token says, read as anyone may read it."""
    found: dict[str, Any] = json.loads(base64url.decode(token.split(".")[1]))
    return found


def note_nothing(_refused: RefusedLogin) -> None:
    """Keep no note of an access key that is refused."""


@cache
def _folder() -> Path:
    """Return the data folder of all installs of this process: to make one takes half a second."""
    folder = TemporaryDirectory(prefix="entrepot-install-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


async def opened_install(
    opening: Opening, planes: PlaneApplications, clock: ManualClock
) -> Install:
    """Return the install of planes that are open already."""
    return Install(
        opening.install.database,
        clock,
        dispatcher(planes.data, planes.control),
        await opening.get(BEARERS),
        await opening.get(SERVICES),
        await opening.get(KEYRING),
        await opening.get(SIGNING_KEYS),
        await opening.get(TOKENS),
        cast("BearerAuthenticator", await opening.get(AUTHENTICATOR)),
        await opening.needs_of(KMS),
        opening,
    )


@asynccontextmanager
async def open_install(
    url: str,
    *,
    clock: ManualClock | None = None,
    keyring: Keyring | None = None,
    issuer: str = URL,
    limits: Limits | None = None,
    **settings: Any,  # noqa: ANN401 - those of `Settings`
) -> AsyncIterator[Install]:
    """Open an install over a migrated database, with other `settings` if they are given."""
    clock = clock or ManualClock()
    keyring = keyring or Keyring(bytes(32))
    edition = replace(SERVE, offers=(*SERVE.offers, known(KEYRING, keyring)))
    async with AsyncExitStack() as resources:
        database = open_database(url)
        resources.push_async_callback(database.close)
        registry = Registry(
            Settings(
                data=_folder(),
                public_url=issuer,
                region=REGION,
                founders="anyone",
                limits=limits or IN_FILES,
                **settings,
            ),
            edition,
            database=database,
            store=MemoryStore(),
            clock=clock,
            new_id=lambda: uuid7(clock()),
        )
        opening, planes = await resources.enter_async_context(registry.open_planes())
        yield await opened_install(opening, planes, clock)
