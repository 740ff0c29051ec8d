"""The whole matrix of `/v2` as one install for each state: callers, their policies, repositories.

Everything is real but the wire: logins are minted and exchanged, bearers are signed and checked at
the door, policies are rows. A bearer speaks of nine repositories at once, one for each resource
policy, so that one exchange serves many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from sqlalchemy import bindparam

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement as DatabaseStatement
from cloudcore.errors import AccessDenied, Unauthenticated
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.sessions import revoke_session
from cloudcore.identity.services import roles, service_accounts
from cloudcore.serving.asgi import Scope
from registry.distribution.auth import DELETE, PULL, PUSH, Challenges, Need
from registry.distribution.token_access import BearerGrant, TokenAccess
from registry.errors import TokenDenied, TokenRequired
from registry.metadata.tables import repositories
from registry.oci.reference import Name
from registry.services.access.logins import USERNAME, ClientCredential, mint_login, new_password
from registry.services.repositories.details import delete_repository
from tests.inprocess import ManualClock
from tests.tenants import (
    ALLOW_ALL,
    Install,
    Program,
    Statement,
    allow,
    deny,
    let,
    note_nothing,
    refuse,
)

Login = str
Outcome = Literal["in", "401", "403"]
PULLS: Final = "registry:PullImage"
PUSHES: Final = "registry:PushImage"
CREATES: Final = "registry:CreateRepository"

PRINCIPALS: Final = (
    *("anonymous", "garbage token", "expired", "revoked session", "account owner"),
    *("person without role", "person with role", "service account", "role session"),
    *("role session of a stranger", "another account", "deleted", "old login", "internal actor"),
)
ACTIONS: Final[dict[str, Need | None]] = {
    "ping": None,
    "pull manifest": PULL,
    "pull blob": PULL,
    "head": PULL,
    "tags": PULL,
    "referrers": PULL,
    "upload": PUSH,
    "mount to": PUSH,
    "mount from": None,
    "new tag": PUSH,
    "move tag": PUSH,
    "delete tag": DELETE,
    "delete manifest": DELETE,
    "delete blob": DELETE,
}
RESOURCE: Final = (
    *("none", "account-pull", "account-push", "role-pull", "everyone-pull", "deny-account"),
    *("deny-everyone", "allow-and-deny", "since-deleted"),
)
IDENTITY: Final = (
    *("none", "exact", "all", "prefix", "other-resource", "other-action", "deny"),
    *("allow-and-deny", "images-only"),
)
STATES: Final = (
    *("present", "absent", "recreated", "immutable", "key disabled", "shared with a sibling"),
    *("grant removed", "owner suspended", "pull-through"),
)
COLLAPSED: Final = {"key disabled": "present", "pull-through": "present"}
"""States that nothing can be in yet, and those whose rows are theirs."""

NO_CREDENTIAL: Final = ("person without role", "internal actor")
ROLES: Final = (
    *("revoked session", "account owner", "person with role", "role session"),
    "role session of a stranger",
)
DEAD: Final = ("garbage token", "expired", "revoked session", "deleted", *NO_CREDENTIAL)


class StandingClock(ManualClock):
    """A clock that only goes when it is told."""

    def __call__(self) -> int:
        """Return the time."""
        return self.now


def slug(text: str) -> str:
    """Return a text as part of a name."""
    return text.replace(" ", "-")


def own_statements(kind: str, principal: str, crns: Sequence[str]) -> list[Statement]:
    """Return what a caller's own policy says, of the repositories with these names."""
    given = ALLOW_ALL if principal == "account owner" else allow("storage:GetObject")
    exactly = allow("registry:*") | {"resources": list(crns)}
    others = allow("registry:*") | {"resources": [f"{crn}2" for crn in crns]}
    prefix = crns[0].rpartition("/")[0] + "/*"
    return [
        given,
        *{
            "none": [],
            "exact": [exactly],
            "all": [ALLOW_ALL],
            "prefix": [allow("registry:*", on=prefix)],
            "other-resource": [others],
            "other-action": [allow("registry:DescribeRepositories")],
            "deny": [exactly | {"effect": "deny"}],
            "allow-and-deny": [ALLOW_ALL, deny("registry:P*")],
            "images-only": [allow(PULLS, PUSHES)],
        }[kind],
    ]


def attached_statements(kind: str, account: str, crns: Sequence[str]) -> list[Statement]:
    """Return what a repository's policy says of an account, or of callers in it."""
    both = (PULLS, PUSHES)
    return {
        "none": [],
        "account-pull": [let(account)],
        "account-push": [let(account, actions=both)],
        "role-pull": [let(*crns)],
        "everyone-pull": [let("*")],
        "deny-account": [refuse(account, actions=both)],
        "deny-everyone": [let(account, actions=both), refuse("*", actions=both)],
        "allow-and-deny": [let(account, actions=both), refuse(*crns)],
        "since-deleted": [let(*crns, actions=both)],
    }[kind]


@dataclass
class Callers:
    """One principal nine times, each with another policy of its own, and its repositories."""

    principal: str
    home: Account
    repositories: list[Name]
    crns: list[str]
    """Of the repositories."""
    attached: list[list[Statement]] = field(default_factory=list)
    """What a decision sees of each repository's policy."""
    programs: list[Program] = field(default_factory=list)
    logins: list[Login | None] = field(default_factory=list)
    statements: list[list[Statement]] = field(default_factory=list)


@dataclass
class Matrix:
    """One state of the matrix, set up."""

    install: Install
    state: str
    clock: StandingClock
    owner: Account
    stranger: Account
    access: TokenAccess

    async def callers(self, principal: str) -> Callers:
        """Set up a principal with its repositories."""
        home = self.stranger if principal == "another account" else self.owner
        if principal == "anonymous":
            home = self.stranger
        names = [f"{slug(principal)}/{kind}" for kind in RESOURCE]
        crns = [f"crn:registry:local:{self.owner.id}:repository/{name}" for name in names]
        found = Callers(principal, home, [Name(self.owner.handle, name) for name in names], crns)
        namesakes = [await self._add(found, kind, "gone") for kind in IDENTITY]
        await self._add_repositories(found, namesakes)
        return found

    async def _add_repositories(self, callers: Callers, namesakes: list[Program]) -> None:
        """Make the repositories; the last one's policy means those who bore the names before."""
        names = [program.crn for program in namesakes]
        for place, kind in enumerate(RESOURCE[:-1]):
            if place == 0:
                await self._add_repository(callers, RESOURCE[-1], names)
                await self._replace(callers, namesakes)
            await self._add_repository(callers, kind, names)
        callers.attached.append(callers.attached.pop(0))
        if callers.principal == "anonymous":
            return
        callers.attached[-1] = []  # nobody who is there now

    async def _add_repository(self, callers: Callers, kind: str, crns: list[str]) -> None:
        said = attached_statements(kind, callers.home.id, crns)
        callers.attached.append([] if self.state == "absent" else said)
        if self.state == "absent":
            return
        name = f"{slug(callers.principal)}/{kind}"
        install = self.install
        if self.state == "recreated":
            first = await install.add_repository(self.owner, name, let("*", callers.home.id))
            await install.database.write(
                delete_repository, self.owner.id, first, install.ctx.change_by(""), force=False
            )
        if self.state == "shared with a sibling":
            await install.add_repository(self.owner, f"{name}-sibling", let("*"))
        made = await install.add_repository(self.owner, name, *said)
        if self.state == "immutable":
            await install.database.write(_make_immutable, made)

    async def _replace(self, callers: Callers, namesakes: list[Program]) -> None:
        """Delete who bore the names, and give them to others."""
        is_role = callers.principal in ROLES
        delete = roles.delete_role if is_role else service_accounts.delete_service_account
        for program in namesakes:
            await self.install.database.write(delete, callers.home.id, program.id)
        for kind in IDENTITY:
            callers.programs.append(await self._add(callers, kind, ""))
            callers.statements.append(own_statements(kind, callers.principal, callers.crns))

    async def _add(self, callers: Callers, kind: str, policy: str) -> Program:
        install, name = self.install, f"{slug(callers.principal)}-{kind}"
        said = own_statements(kind, callers.principal, callers.crns)
        policy = f"{policy}-{name}" if policy else name
        if callers.principal not in ROLES:
            return await install.add_program(callers.home, name, *said, policy=policy)
        source = None
        if callers.principal == "role session of a stranger":
            source = await install.add_program(self.stranger, f"source-{policy}")
        return await install.add_role_session(
            callers.home, name, *said, source=source, policy=policy
        )

    async def mint(self, callers: Callers) -> None:
        """Give each caller its login, then let happen what its principal is called after."""
        for program in callers.programs:
            callers.logins.append(await self._login(callers.principal, program))
        for program in callers.programs:
            if callers.principal == "revoked session":
                assert program.sid is not None
                await self.install.database.write(revoke_session, program.sid, self.clock())
            if callers.principal == "deleted":
                await self.install.database.write(
                    service_accounts.delete_service_account, callers.home.id, program.id
                )

    async def _login(self, principal: str, program: Program) -> Login | None:
        if principal == "garbage token":
            return new_password()
        if principal in ("anonymous", "internal actor"):
            return None
        if principal == "person without role":
            person = Principal(
                PrincipalKind.USER, uuid7(), "crn:iam::o:user/u", None, "o", None, uuid7(), 0
            )
            try:
                await self.install.database.write(
                    mint_login, person, uuid7(), new_password(), self.clock()
                )
            except AccessDenied:
                return None
            raise AssertionError("a person without a role got a login")
        return await self.install.login(program)

    async def exchange(self, callers: Callers, number: int) -> bytes | None:
        """Return the header of a bearer for all repositories, None where none is to be had."""
        login = callers.logins[number]
        if login is None and callers.principal != "anonymous":
            return None
        requested = dict.fromkeys(callers.repositories, ("pull", "push", "delete"))
        try:
            credential = None if login is None else ClientCredential(USERNAME, login)
            issued = await self.install.tokens.exchange(credential, requested, None, note_nothing)
        except Unauthenticated:
            return None
        return b"Bearer " + issued.token.encode()

    async def answer(self, credential: bytes | None, action: str, name: Name) -> Outcome:
        """Ask the door, and where a request asks on, the policies of this moment."""
        try:
            grant = self._enter(credential, action, name)
            if action == "mount from":
                may_mount = await grant.sources(Name(name.handle, "target"), name)
                return "in" if may_mount(name) else "403"
            if self.state == "absent" and ACTIONS[action] is PUSH:
                return "in" if await grant.may_create(name) else "403"
        except TokenRequired:
            return "401"
        except TokenDenied:
            return "403"
        return "in"

    def _enter(self, credential: bytes | None, action: str, name: Name) -> BearerGrant:
        scope: Scope = {
            "type": "http",
            "method": "GET",
            "raw_path": b"/v2/",
            "query_string": b"",
            "scheme": "http",
            "headers": [] if credential is None else [(b"authorization", credential)],
        }
        grant = self.access.authorize(scope, name, ACTIONS[action])
        assert isinstance(grant, BearerGrant)
        return grant


_IMMUTABLE: Final = DatabaseStatement(
    repositories.update()
    .where(repositories.c.id == bindparam("of_id"))
    .values(tag_mutability=bindparam("mutability"))
)


def _make_immutable(tx: Connection, repository_id: str) -> None:
    tx.execute(_IMMUTABLE, of_id=repository_id, mutability="immutable")


async def open_matrix(install: Install, state: str) -> Matrix:
    """Return a matrix without callers."""
    clock = install.clock
    assert isinstance(clock, StandingClock)
    owner = await install.add_account("owner")
    stranger = await install.add_account("stranger")
    access = TokenAccess(install.tokens, Challenges("http://registry.test"), clock)
    return Matrix(install, state, clock, owner, stranger, access)


SECOND: Final = MICROSECONDS
