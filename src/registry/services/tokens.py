"""Tokens of the data plane: who asks, what each scope grants, and the credential behind it.

A *login credential* says who someone is and grants nothing. It is exchanged for a *bearer* of
five minutes that carries what policies granted at that moment, so that a pull needs no look-up;
whatever is taken away is gone when the bearer ends (B1 to B3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, NamedTuple, Protocol

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unauthenticated
from cloudcore.identity.decision import could_allow
from cloudcore.identity.policy import Policy
from cloudcore.identity.principal import Principal
from cloudcore.identity.tokens import BEARER_SECONDS
from registry.metadata import logins, policies, settings
from registry.metadata.logins import Login
from registry.metadata.policies import Target
from registry.oci.reference import Name, parse_name
from registry.services.access import DESCRIBE, PERMISSIONS, Subject, is_allowed
from registry.services.logins import hash_of, principal_of
from registry.services.registry_settings import counts_pulls_of

CATALOG: Final = Name("", "catalog")
"""Stands for ``registry:catalog:*`` among the names of a bearer."""

Address = IPv4Address | IPv6Address


class Entry(NamedTuple):
    """What a bearer says of one name: both lists are of actions that were asked for."""

    granted: tuple[str, ...]
    denied: tuple[str, ...]
    counts_pulls: bool = True
    """A pull says that the image is in use; not one by a scanner or a backup, say."""


class Bearer(NamedTuple):
    """What a verified bearer says."""

    subject: str
    """CRN of the principal; empty when nobody has signed in."""
    token_id: str
    login_id: str | None
    expires_at: int
    access: Mapping[Name, Entry]


class IssuedBearer(NamedTuple):
    """A new bearer, and what its client is told of it."""

    token: str
    subject: str
    """CRN of the principal; empty when nobody has signed in."""
    issued_at: int
    access: Mapping[Name, Entry]


class Signer(Protocol):
    """Makes and checks the signed form of bearers."""

    def issue_bearer(self, claims: Mapping[str, Any]) -> str:
        """Return the claims as a signed token."""
        ...

    def verify_bearer(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token that is one of ours and valid now.

        Raises:
            Unauthenticated.

        """
        ...


class PolicySource(Protocol):
    """Where the identity policies of a principal are found."""

    async def policies_of(self, principal: Principal) -> Sequence[Policy]:
        """Return the policies that hold for `principal` now."""
        ...


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token service of one process."""

    database: Database
    clock: Clock
    signer: Signer
    source: PolicySource
    region: str

    async def exchange(
        self,
        password: str | None,
        requested: Mapping[Name, tuple[str, ...]],
        source_ip: Address | None,
    ) -> IssuedBearer:
        """Return a bearer with what the caller may do of what is `requested`.

        Without a `password` nobody signs in, and only what is public is granted. To be refused
        everything is not an error: the bearer says so.

        Raises:
            Unauthenticated: the password is wrong, or what stood behind it has ended.

        """
        login = None if password is None else await self._login(password)
        subject = await self._subject(login, source_ip)
        now = self.clock()
        granted = await self._entries(subject, requested, now)
        issued_at = now // MICROSECONDS
        claims: dict[str, Any] = {
            "sub": "" if subject.principal is None else subject.principal.crn,
            "iat": issued_at,
            "exp": issued_at + BEARER_SECONDS,
            "access": [_claim(name, entry) for name, entry in granted.items()],
        }
        if login is not None:
            claims |= {"lid": login.id, "acc": login.account_id}
        return IssuedBearer(self.signer.issue_bearer(claims), claims["sub"], now, granted)

    def verify(self, token: str) -> Bearer:
        """Return what a bearer says; costs no read.

        Raises:
            Unauthenticated: it is not one of ours, or its time is over.

        """
        claims = self.signer.verify_bearer(token)
        if claims["exp"] - claims["iat"] > BEARER_SECONDS:
            raise Unauthenticated("no bearer lives as long as this one says")
        return Bearer(
            subject=claims["sub"],
            token_id=claims["jti"],
            login_id=claims.get("lid"),
            expires_at=claims["exp"] * MICROSECONDS,
            access=dict(map(_entry, claims["access"])),
        )

    async def may(
        self, bearer: Bearer, action: str, names: Sequence[Name], source_ip: Address | None
    ) -> frozenset[Name]:
        """Return the names on which the bearer's subject may do `action` as things are now."""
        found = await self.find_subject(bearer, source_ip)
        if found is None or not names:
            return frozenset()
        targets = await self.database.read(_targets, names)
        now = self.clock()
        return frozenset(
            name
            for name, target in zip(names, targets, strict=True)
            if is_allowed(found[0], action, target, name.repository, self.region, now)
        )

    async def find_subject(
        self, bearer: Bearer, source_ip: Address | None
    ) -> tuple[Subject, Login | None] | None:
        """Return who stands behind a bearer now; None when its login has ended."""
        login: Login | None = None
        if bearer.login_id is not None:
            login = await self.database.read(logins.find_login_by_id, bearer.login_id, self.clock())
            if login is None:
                return None
        return await self._subject(login, source_ip), login

    def may_describe(self, subject: Subject, login: Login, name: Name) -> bool:
        """Say whether `subject` may know of a repository of its own account."""
        target = Target(login.account_id, None, None, None)
        return is_allowed(subject, DESCRIBE, target, name.repository, self.region, self.clock())

    async def _login(self, password: str) -> Login:
        login = await self.database.read(logins.find_login, hash_of(password), self.clock())
        if login is None:
            raise wrong_login()
        return login

    async def _subject(self, login: Login | None, source_ip: Address | None) -> Subject:
        if login is None:
            return Subject(None, (), source_ip)
        principal = principal_of(login)
        return Subject(principal, await self.source.policies_of(principal), source_ip)

    async def _entries(
        self, subject: Subject, requested: Mapping[Name, tuple[str, ...]], now: int
    ) -> dict[Name, Entry]:
        names = [name for name in requested if name != CATALOG]
        targets, uncounted = await self.database.read(_targets_and_uncounted, names)
        crn = "" if subject.principal is None else subject.principal.crn
        entries = {}
        for name, target in zip(names, targets, strict=True):
            granted = tuple(
                action
                for action in requested[name]
                if is_allowed(
                    subject, PERMISSIONS[action], target, name.repository, self.region, now
                )
            )
            denied = tuple(action for action in requested[name] if action not in granted)
            counts = counts_pulls_of(crn, uncounted.get(target.account_id or "", ()))
            entries[name] = Entry(granted, denied, counts)
        if CATALOG in requested:
            may_list = could_allow(subject.policies, DESCRIBE, subject.source_ip, now)
            entries[CATALOG] = Entry(("*",), ()) if may_list else Entry((), ("*",))
        return entries


def wrong_login() -> Unauthenticated:
    """Return the one error for every credential that does not do."""
    return Unauthenticated("the user name or password is wrong, or has expired")


def _targets(tx: Connection, names: Sequence[Name]) -> list[Target]:
    return [policies.find_target(tx, name.handle, name.repository) for name in names]


def _targets_and_uncounted(
    tx: Connection, names: Sequence[Name]
) -> tuple[list[Target], Mapping[str, Sequence[str]]]:
    """Return the targets, and of their accounts the patterns of pullers who do not count."""
    targets = _targets(tx, names)
    accounts = sorted({each.account_id for each in targets if each.account_id is not None})
    return targets, settings.uncounted_pullers_of(tx, accounts)


def _claim(name: Name, entry: Entry) -> dict[str, object]:
    kind, text = ("registry", "catalog") if name == CATALOG else ("repository", str(name))
    uncounted = {} if entry.counts_pulls else {"uncounted": True}
    return {
        "type": kind,
        "name": text,
        "actions": entry.granted,
        "denied": entry.denied,
        **uncounted,
    }


def _entry(claim: Mapping[str, Any]) -> tuple[Name, Entry]:
    name = CATALOG if claim["type"] == "registry" else parse_name(claim["name"])
    counts = "uncounted" not in claim
    return name, Entry(tuple(claim["actions"]), tuple(claim["denied"]), counts)
