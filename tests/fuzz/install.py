"""An install of ``entrepot serve`` in this process, which can be put back as it was.

Every example meets the same state, so that one which suspends its own account, or deletes the
policy that lets it in, is worth as much as any other, and a failure can be repeated.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from cloudcore.clock import MICROSECONDS, system_clock, uuid7
from cloudcore.db.base import Connection
from cloudcore.identity.bootstrap import FirstCredentials, create_first_account
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rows.accounts import ACCOUNTS, Account, find_account
from cloudcore.identity.rows.organizations import ORGANIZATIONS, Organization
from cloudcore.identity.rows.sessions import Session, add_session
from cloudcore.identity.rows.users import User, list_users_by_email
from cloudcore.identity.services.users import add_person
from cloudcore.keyring import create_root_key
from registry.composition.main import Registry
from registry.composition.serve import SERVE
from registry.settings.email import EmailSettings
from registry.settings.node import NodeSettings
from registry.settings.settings import Settings
from tests.inprocess import ManualClock
from tests.passwords import KEPT_PASSWORD
from tests.tenants import ALLOW_ALL, Install, allow, opened_install

EMAIL: Final = "admin@example.org"
_ADDRESSES: Final = ",".join(f"198.51.100.{number}" for number in range(256))
OUTSIDER: Final = "outsider@example.org"
HANDLE: Final = "acme"
_DAY: Final = 86_400 * MICROSECONDS
_HALF_A_DAY: Final = 43_200 * MICROSECONDS
# What was compiled of policies is told apart by their account's revision: none may come twice.
_RAISE: Final = "UPDATE kept.accounts SET iam_revision = iam_revision + 1000"


@dataclass
class FuzzedInstall:
    """The application, its callers, and the state that examples begin with."""

    runner: asyncio.Runner
    transport: httpx.ASGITransport
    url: str
    live: sqlite3.Connection
    first: FirstCredentials
    bearers: dict[str, str]
    """Access tokens, by the name of the caller."""
    cookie: str = ""
    """Of a browser that was shown the sign-in page."""
    tables: tuple[str, ...] = ()
    """Those whose rows were kept."""
    triggering: frozenset[str] = frozenset()
    """Those whose changes triggers of the schema follow."""
    restored: int = 0
    """What `_version` said after the last `rewind`."""

    def send(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to a request."""
        return self.runner.run(self._send(request))

    async def _send(self, request: httpx.Request) -> httpx.Response:
        answer = await self.transport.handle_async_request(request)
        answer.request = request
        await answer.aread()
        return answer

    def keep(self) -> None:
        """Take the present state for the one that `rewind` restores, and note changes from now on.

        To copy the whole file anew would let each connection read its thousand tables and indices
        anew too, which takes longer than most requests.
        """
        found = self.live.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%'"
            " ESCAPE '\\'"
        )
        self.tables = tuple(name for (name,) in found)
        followed = self.live.execute("SELECT tbl_name FROM sqlite_schema WHERE type = 'trigger'")
        self.triggering = frozenset(name for (name,) in followed)
        self.live.execute("ATTACH ':memory:' AS kept")
        self.live.execute("BEGIN IMMEDIATE")
        self.live.execute("CREATE TABLE changed (name)")
        for table in self.tables:
            self.live.execute(f'CREATE TABLE kept."{table}" AS SELECT * FROM main."{table}"')
            for change in ("INSERT", "UPDATE", "DELETE"):
                self.live.execute(
                    f'CREATE TRIGGER "{change} {table}" AFTER {change} ON "{table}" BEGIN'
                    f" INSERT INTO changed VALUES ('{table}'); END"
                )
        self.live.commit()
        self.restored = self._version()

    def rewind(self) -> None:
        """Restore the state that was kept, if anybody has committed a change since."""
        version = self._version()
        if version == self.restored:
            return
        self.live.execute("BEGIN IMMEDIATE")
        self.live.execute(_RAISE)
        # Triggers write rows of other tables while theirs are restored: those come after them.
        self._restore((self._changed() | {"accounts"}) & self.triggering)
        self._restore((self._changed() | {"accounts"}) - self.triggering)
        self.live.execute("DELETE FROM changed")
        self.live.commit()
        self.restored = self._version()

    def _changed(self) -> set[str]:
        return {name for (name,) in self.live.execute("SELECT name FROM changed")}

    def _restore(self, tables: set[str]) -> None:
        for table in tables:
            self.live.execute(f'DELETE FROM main."{table}"')
            self.live.execute(f'INSERT INTO main."{table}" SELECT * FROM kept."{table}"')

    def check_rewound(self) -> None:
        """Check that `rewind` has restored each row of each table."""
        self.rewind()
        for table in self.tables:
            rows = [
                sorted(map(repr, self.live.execute(f'SELECT * FROM {where}."{table}"')))
                for where in ("main", "kept")
            ]
            assert rows[0] == rows[1], table

    def _version(self) -> int:
        """Return a number that changes when another connection commits to the live file."""
        version: int = self.live.execute("PRAGMA data_version").fetchone()[0]
        return version


@contextmanager
def open_fuzzed_install(folder: Path, migrated: Path) -> Iterator[FuzzedInstall]:
    """Set an install up over a copy of the `migrated` database, with a caller of every kind."""
    settings = Settings(
        data=folder,
        founders="anyone",
        email=EmailSettings(email_sending="direct", email_dedicated_ips=_ADDRESSES),
        # Nothing runs: there is no watcher.
        node=NodeSettings(
            balancer_vips="192.0.2.0/24", compute_driver="runc", database_driver="bubblewrap"
        ),
    )
    shutil.copy(migrated, folder / "metadata.db")
    create_root_key(settings.root_key)
    with asyncio.Runner() as runner:
        # Without workers of jobs: after each `rewind` they would do the same jobs again.
        resources = AsyncExitStack()
        planes = Registry(settings, SERVE).open_planes()
        opened = runner.run(resources.enter_async_context(planes))
        install = runner.run(opened_install(*opened, ManualClock(system_clock())))
        first, bearers = runner.run(_people(install))
        with closing(sqlite3.connect(folder / "metadata.db", timeout=30)) as live:
            live.execute("PRAGMA synchronous = OFF")
            transport = httpx.ASGITransport(install.app)
            yield FuzzedInstall(runner, transport, settings.url, live, first, bearers)
        runner.run(resources.aclose())


async def _people(install: Install) -> tuple[FirstCredentials, dict[str, str]]:
    """Make the first account and another, and a caller of every kind with a token."""
    first = await create_first_account(
        install.database, install.keyring, uuid7, install.clock(), handle=HANDLE, email=EMAIL
    )
    account = await install.database.read(find_account, first.account_id)
    assert account is not None
    admin = await install.add_program(account, "fuzz", ALLOW_ALL)
    role = await install.add_role_session(account, "night", ALLOW_ALL, source=admin)
    nobody = await install.add_program(account, "nobody", allow("storage:GetObject"))
    other = Account(uuid7(), uuid7(), "partner", install.clock())
    await install.database.write(_add_with_organization, other)
    await install.database.write(_add_outsider, install.clock())
    await install.kms.maker.add_missing_platform_keys(install.database, install.clock())
    stranger = await install.add_program(other, "stranger", ALLOW_ALL)
    return first, {
        "admin": admin.access_token,
        "role": role.access_token,
        "nobody": nobody.access_token,
        "stranger": stranger.access_token,
        "person": await install.database.write(_person, install),
    }


def _add_with_organization(tx: Connection, account: Account) -> None:
    assert account.organization_id is not None
    now = account.created_at
    ORGANIZATIONS.add(tx, Organization(account.organization_id, account.handle, now, now))
    ACCOUNTS.add(tx, account)


def _add_outsider(tx: Connection, now: int) -> None:
    """Add a person who is in no organization of anybody else."""
    add_person(tx, User(uuid7(), OUTSIDER, KEPT_PASSWORD, uuid7(), now, now))


def _person(tx: Connection, install: Install) -> str:
    """Sign the first person in, without the page; return the access token."""
    (user,) = list_users_by_email(tx, EMAIL)
    now = install.clock()
    session = Session(uuid7(), "user", now, now + _DAY, user_id=user.id)
    add_session(tx, session)
    return install.access_tokens.issue(
        iam_crn(user.organization_id, "user", user.id),
        uuid7(),
        now + _HALF_A_DAY,
        sid=session.id,
    )
