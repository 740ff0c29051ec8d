"""The matrix of principals, requests, policies and states, over HTTP and against the oracle.

All rows would be a hundred thousand; every pair of values of any two columns is met at least
once, and some hundred rows more are drawn.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

import httpx
import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.sessions import revoke_session
from cloudcore.identity.services import roles, service_accounts
from registry.metadata.repositories.repository import find_repository
from registry.services.repositories.details import delete_repository
from tests.property.access_oracle import Asker, Statement, may
from tests.tenants import (
    ALLOW_ALL,
    Install,
    Program,
    allow,
    basic,
    bearer,
    deny,
    let,
    open_install,
    refuse,
)

ZERO: Final = f"sha256:{'0' * 64}"
UPLOAD: Final = "blobs/uploads/00000000-0000-7000-8000-000000000000"

ACTIONS: Final = {
    "pull manifest": ("GET", "manifests/v1", "pull"),
    "pull blob": ("GET", f"blobs/{ZERO}", "pull"),
    "head manifest": ("HEAD", "manifests/v1", "pull"),
    "head blob": ("HEAD", f"blobs/{ZERO}", "pull"),
    "tags": ("GET", "tags/list", "pull"),
    "referrers": ("GET", f"referrers/{ZERO}", "pull"),
    "start upload": ("POST", "blobs/uploads/", "push"),
    "mount": ("POST", f"blobs/uploads/?mount={ZERO}&from=nobody/x", "push"),
    "patch upload": ("PATCH", UPLOAD, "push"),
    "commit upload": ("PUT", f"{UPLOAD}?digest={ZERO}", "push"),
    "upload status": ("GET", UPLOAD, "push"),
    "cancel upload": ("DELETE", UPLOAD, "push"),
    "put manifest": ("PUT", "manifests/v1", "push"),
    "delete tag": ("DELETE", "manifests/v1", "delete"),
    "delete manifest": ("DELETE", f"manifests/{ZERO}", "delete"),
    "delete blob": ("DELETE", f"blobs/{ZERO}", "delete"),
}
PERMISSIONS: Final = {
    "pull": "registry:PullImage",
    "push": "registry:PushImage",
    "delete": "registry:DeleteImage",
}
PRINCIPALS: Final = (
    "anonymous",
    "garbage token",
    "insider",
    "insider's role",
    "role assumed by a stranger",
    "stranger",
    "stranger's role",
    "revoked session",
    "deleted",
)
BOTH: Final = ("registry:PullImage", "registry:PushImage")
RESOURCE: Final = (
    "none",
    "account pull",
    "account push",
    "role pull",
    "everyone pull",
    "deny account",
    "deny everyone",
    "allow and deny",
    "since deleted",
)
IDENTITY: Final = (
    "none",
    "exact",
    "all",
    "prefix",
    "other resource",
    "other action",
    "deny",
    "allow and deny",
    "pull only",
)
STATES: Final = (
    "present",
    "absent",
    "recreated",
    "removed 299 s ago",
    "removed 301 s ago",
    "owner suspended",
)
COLUMNS: Final = (tuple(ACTIONS), PRINCIPALS, RESOURCE, IDENTITY, STATES)


class Row(NamedTuple):
    """One case of the matrix."""

    action: str
    principal: str
    resource: str
    identity: str
    state: str


def cover(seed: int, more: int) -> list[Row]:
    """Return rows that hold every pair of values of two columns, and some drawn at random."""
    dice = random.Random(seed)
    open_pairs = {
        ((a, left), (b, right))
        for a, b in itertools.combinations(range(len(COLUMNS)), 2)
        for left in COLUMNS[a]
        for right in COLUMNS[b]
    }
    rows = []
    while open_pairs:
        fixed = dict(min(open_pairs))
        best: tuple[str, ...] = ()
        gain = -1
        for _ in range(40):
            drawn = tuple(fixed.get(at) or dice.choice(column) for at, column in enumerate(COLUMNS))
            found = len(open_pairs & set(pairs(drawn)))
            if found > gain:
                best, gain = drawn, found
        open_pairs -= set(pairs(best))
        rows.append(Row(*best))
    rows += [Row(*map(dice.choice, COLUMNS)) for _ in range(more)]
    return rows


def pairs(row: Sequence[str]) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    cells = list(enumerate(row))
    return list(itertools.combinations(cells, 2))


def identity(kind: str, crn: str) -> list[Statement]:
    """Return what the caller's own policy says."""
    return {
        "none": [allow("storage:GetObject")],
        "exact": [allow("registry:*", on=crn)],
        "all": [ALLOW_ALL],
        "prefix": [allow("registry:*", on=crn.replace("web/app", "web/*"))],
        "other resource": [allow("registry:*", on=f"{crn}2")],
        "other action": [allow("registry:DescribeRepositories", "registry:GetAuthorizationToken")],
        "deny": [deny("registry:*", on=crn)],
        "allow and deny": [ALLOW_ALL, deny("registry:P*", on=crn)],
        "pull only": [allow("registry:PullImage")],
    }[kind]


def resource(kind: str, home: Account, crn: str) -> list[Statement]:
    """Return what the repository's policy says of the caller's account, or of `crn` in it."""
    account = home.id
    return {
        "none": [],
        "account pull": [let(account)],
        "account push": [let(account, actions=BOTH)],
        "role pull": [let(crn)],
        "everyone pull": [let("*")],
        "deny account": [refuse(account, actions=BOTH)],
        "deny everyone": [let(account, actions=BOTH), refuse("*", actions=BOTH)],
        "allow and deny": [let(account, actions=BOTH), refuse(crn)],
        "since deleted": [let(crn, actions=BOTH)],
    }[kind]


class Scene:
    """One row, set up in two accounts of its own."""

    def __init__(self, install: Install, row: Row, owner: Account, stranger: Account) -> None:
        self.install = install
        self.row = row
        self.owner = owner
        self.name = f"{owner.handle}/web/app"
        self.crn = f"crn:registry:local:{owner.id}:repository/web/app"
        self.is_insider = row.principal not in ("stranger", "stranger's role", "deleted")
        self.home = owner if self.is_insider else stranger
        self.other = stranger if self.is_insider else owner
        self.is_role = "role" in row.principal or row.principal == "revoked session"
        self.statements = identity(row.identity, self.crn)
        self.policy = ""

    async def add_caller(self) -> Program:
        if not self.is_role:
            return await self.install.add_program(
                self.home, "caller", *self.statements, policy=self.policy
            )
        source = None
        if self.row.principal == "role assumed by a stranger":
            source = await self.install.add_program(self.other, f"source{self.policy}")
        return await self.install.add_role_session(
            self.home, "caller", *self.statements, source=source, policy=self.policy
        )

    async def add_repository(self, crn: str) -> list[Statement]:
        """Make the repository with its policy, and return what a decision sees of it."""
        if self.row.state == "absent":
            return []
        said = resource(self.row.resource, self.home, crn)
        if self.row.state == "recreated":
            first = await self.install.add_repository(self.owner, "web/app", let("*"))
            await self.install.database.write(
                delete_repository, self.owner.id, first, self.install.ctx.change_by(""), force=False
            )
        await self.install.add_repository(self.owner, "web/app", *said)
        return [] if self.row.resource == "since deleted" else said

    async def set_up(self) -> tuple[Program, list[Statement]]:
        kind = "role" if self.is_role else "service-account"
        crn = f"crn:iam::{self.home.id}:{kind}/caller"
        if self.row.resource != "since deleted":
            caller = await self.add_caller()
            return caller, await self.add_repository(crn)
        namesake = await self.add_caller()
        attached = await self.add_repository(crn)
        delete = roles.delete_role if self.is_role else service_accounts.delete_service_account
        await self.install.database.write(delete, self.home.id, namesake.id)
        self.policy = "another"
        return await self.add_caller(), attached

    async def remove_grants(self, caller: Program) -> None:
        """Take every right away."""
        await self.install.say(caller, deny("*"))
        found = await self.install.database.read(find_repository, self.owner.handle, "web/app")
        if found is not None:
            await self.install.share(found.id, self.owner, refuse("*"))

    async def status(self, client: httpx.AsyncClient, token: str) -> int:
        method, path, _ = ACTIONS[self.row.action]
        answer = await client.request(method, f"/v2/{self.name}/{path}", headers=bearer(token))
        assert answer.status_code < 500
        return answer.status_code

    async def ask(self, caller: Program) -> int:
        """Return the status of the request; 401 too where no token is to be had."""
        row, install = self.row, self.install
        headers = basic(await install.login(caller))
        if row.principal == "revoked session":
            assert caller.sid is not None
            await install.database.write(revoke_session, caller.sid, install.clock())
        if row.principal == "deleted":
            await install.database.write(
                service_accounts.delete_service_account, self.home.id, caller.id
            )
        if row.state == "owner suspended":
            await install.suspend_account(self.owner)
        install.clock.now += -install.clock.now % MICROSECONDS
        scope = f"/v2/token?scope=repository:{self.name}:*"
        async with install.connect() as client:
            given = {} if row.principal == "anonymous" else headers
            exchanged = await client.get(scope, headers=given)
            token = exchanged.json().get("token", "")
            if row.state.startswith("removed"):
                before = install.clock.now
                await self.remove_grants(caller)
                seconds = 299 if "299" in row.state else 301
                install.clock.now = before + seconds * MICROSECONDS
                if seconds == 301:
                    again = await client.get(scope, headers=given)
                    if again.status_code == 200:
                        assert await self.status(client, again.json()["token"]) in (401, 403)
            if row.principal == "garbage token":
                token = f"{token[:-9]}AAAAAAAAA"
            return await self.status(client, token)


async def check(install: Install, row: Row, number: int) -> bool:
    """Play one row, compare with the oracle, and return whether it was allowed."""
    accounts = [await install.add_account(f"{who}{number}") for who in ("owner", "stranger")]
    scene = Scene(install, row, *accounts)
    caller, attached = await scene.set_up()
    is_signed_in = row.principal != "anonymous"
    asker = Asker(
        names={caller.crn, scene.home.id} if is_signed_in else (),
        is_insider=scene.is_insider,
        statements=scene.statements if is_signed_in else (),
    )
    permission = PERMISSIONS[ACTIONS[row.action][2]]
    is_dead = row.principal in ("garbage token", "revoked session", "deleted")
    is_over = row.state in ("removed 301 s ago", "owner suspended")
    expected = not is_dead and not is_over and may(asker, permission, scene.crn, attached)
    status = await scene.ask(caller)
    assert (status not in (401, 403)) == expected, f"{row}: {status}"
    if not expected and row.state != "removed 301 s ago" and not is_dead:
        insider_is_out = row.state == "owner suspended" and scene.is_insider
        assert status == (403 if is_signed_in and not insider_is_out else 401), f"{row}: {status}"
    return expected


@pytest.mark.parametrize("part", range(4))
async def test_every_pair_of_the_matrix_is_as_the_oracle_says(
    sqlite_database: str, part: int
) -> None:
    rows = cover(seed=7, more=120)
    assert len(set(itertools.chain(*map(pairs, rows)))) == sum(
        len(left) * len(right) for left, right in itertools.combinations(COLUMNS, 2)
    )

    allowed = 0
    async with open_install(sqlite_database) as install:
        for number, row in enumerate(rows[part::4]):
            allowed += await check(install, row, number)
    assert allowed > 5
