"""Exchange login credentials for bearer tokens of the data plane, and verify the tokens.

A *login credential* identifies a principal and grants nothing. It is exchanged for a *bearer* of
five minutes with the actions that policies allow at that moment, so that a pull needs no look-up. A
revoked right ends with the bearer. A person's named password (`container_passwords`) and, in
accounts that allow it, an access key (`logins`) are login credentials too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, NamedTuple, Protocol

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unauthenticated
from cloudcore.iam.decision import Caller, Question, Verdict, could_allow, decide
from cloudcore.iam.patterns import StepBudget, TooCostly
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import Principal, SourceIdentity
from registry.metadata import logins, settings
from registry.metadata.logins import Login
from registry.metadata.repositories import policies
from registry.metadata.repositories.policies import RepositoryAccess
from registry.oci.reference import Name, parse_name
from registry.services.access.bearers import BEARER_SECONDS, BearerSigner
from registry.services.access.decisions import (
    DESCRIBE,
    PERMISSIONS,
    AccessSubject,
    too_costly,
    verdict_on,
)
from registry.services.access.logins import (
    NAMED_LOGIN,
    USERNAME,
    ClientCredential,
    FindLogin,
    RefusedLogin,
    find_key,
    hash_of,
    is_access_key_id,
    log_in,
    login_permission,
    principal_of,
    wrong_login,
)
from registry.services.registry_settings import counts_pulls_of

CATALOG: Final = Name("", "catalog")
"""The name that stands for the scope ``registry:catalog`` in a bearer's access."""

REQUEST_STEPS: Final = 64_000_000
"""The maximum number of steps of all decisions of a request: 25 ms (see `patterns.StepBudget`)."""
LISTING_STEPS: Final = 1_000_000_000
"""The maximum number of steps for a page of the catalog, with a decision for each name: 0.4 s."""
SLICE_STEPS: Final = 2_000_000
"""The maximum number of steps before other requests run."""
SLICE_DECISIONS: Final = 10
"""The maximum number of decisions before other requests run. Each may take 0.3 ms without counting
any steps."""

Address = IPv4Address | IPv6Address


class DecisionBudget:
    """Limits the policy steps of one request, and lets other requests run in between."""

    def __init__(self, steps: int = REQUEST_STEPS) -> None:
        self.work = StepBudget(steps)
        self._next = steps - SLICE_STEPS
        self._decisions = 0

    async def pause(self) -> None:
        """Let other requests run before a decision, if the last decisions took long.

        That is after `SLICE_STEPS` steps or, as some decisions count no steps (`verdict_on`), after
        `SLICE_DECISIONS` decisions.
        """
        self._decisions += 1
        if self.work.left <= self._next or self._decisions > SLICE_DECISIONS:
            self._next, self._decisions = self.work.left - SLICE_STEPS, 1
            await asyncio.sleep(0)


class NameRights(NamedTuple):
    """The requested actions on one repository name, granted or denied by a bearer."""

    granted: tuple[str, ...]
    denied: tuple[str, ...]
    counts_pulls: bool = True
    """True if a pull means that the image is in use; False for a scanner or a backup."""
    reasons: tuple[str, ...] = ()
    """The name of the verdict for each of `denied`; empty for principals of other accounts."""


class Bearer(NamedTuple):
    """The content of a verified bearer."""

    subject: str
    """CRN of the principal; empty for an unauthenticated client."""
    token_id: str
    login_id: str | None
    expires_at: int
    access: Mapping[Name, NameRights]
    access_key_id: str | None = None
    """Id of the access key that the bearer was exchanged for, if it was one."""
    source: SourceIdentity | None = None
    """The source identity behind the principal; None for an unauthenticated client."""
    account_id: str | None = None
    """The principal's account."""
    container_password_id: str | None = None
    """Id of the container password that the bearer was exchanged for, if it was one."""


class IssuedBearer(NamedTuple):
    """A new bearer token, with the claims in it."""

    token: str
    subject: str
    """CRN of the principal; empty for an unauthenticated client."""
    issued_at: int
    access: Mapping[Name, NameRights]
    source: SourceIdentity | None = None


class PolicySource(Protocol):
    """Finds the identity policies of a principal."""

    async def policies_of(self, principal: Principal) -> Sequence[Policy]:
        """Return the policies that apply to `principal` now."""


@dataclass(frozen=True, slots=True)
class BearerTokens:
    """The token service of one process.

    Its calls take several transactions: policies come from their own source, and are evaluated
    outside of transactions, in turns with other requests.
    """

    database: Database
    clock: Clock
    signer: BearerSigner
    source: PolicySource
    region: str

    async def exchange(
        self,
        credential: ClientCredential | None,
        requested: Mapping[Name, tuple[str, ...]],
        source_ip: Address | None,
        note_refusal: Callable[[RefusedLogin], None],
    ) -> IssuedBearer:
        """Return a bearer with those of the `requested` actions that the caller may do.

        Without a `credential` the client is unauthenticated, and gets only public access. If every
        action is denied, the bearer lists them as denied; that is not an error. `note_refusal` is
        called if an existing access key or container password is refused.

        Raises:
            Unauthenticated: the credential is wrong, or has expired or was revoked.
            TooManyAttempts: too many failures with access keys or container passwords.
            PolicyTooCostly: the policies take more than `REQUEST_STEPS`.

        """
        login = None
        if credential is not None:
            login = await self._login(credential, source_ip, note_refusal)
        subject = await self._subject(login, source_ip)
        now = self.clock()
        if login is not None and login.is_container_password:
            self._check_logs_in(subject, login, now)
        granted = await self._entries(subject, requested, now)
        issued_at = now // MICROSECONDS
        claims: dict[str, Any] = {
            "sub": "" if subject.principal is None else subject.principal.crn,
            "iat": issued_at,
            "exp": issued_at + BEARER_SECONDS,
            "access": [_claim(name, entry) for name, entry in granted.items()],
        }
        if login is not None:
            claims["acc"] = login.account_id
            if login.direct_key_id is not None:
                claims["akid"] = login.direct_key_id
            elif login.is_container_password:
                claims["cpid"] = login.id
            else:
                claims["lid"] = login.id
        source = None if subject.principal is None else subject.principal.source
        if source is not None:
            claims["src"] = source
        return IssuedBearer(self.signer.issue_bearer(claims), claims["sub"], now, granted, source)

    async def rights_of(self, login: Login | None, name: Name) -> NameRights:
        """Return a role's rights to pull from a repository, by the same policies as `exchange`.

        This is for workloads that run as a role on the platform's machines: their `login` is not
        stored and never leaves this process. Without a login, only public access counts.

        Raise `Unauthenticated` if the role may not log container clients in, `PolicyTooCostly` if
        the policies take more than `REQUEST_STEPS`.
        """
        subject = await self._subject(login, None)
        now = self.clock()
        if login is not None:
            self._check_logs_in(subject, login, now)
        return (await self._entries(subject, {name: ("pull",)}, now))[name]

    def verify(self, token: str) -> Bearer:
        """Verify a bearer and return its content, without reading the database.

        Raise `Unauthenticated` if this registry did not issue it, or it is not valid now.
        """
        claims = self.signer.verify_bearer(token)
        if claims["exp"] - claims["iat"] > BEARER_SECONDS:
            raise Unauthenticated("the token claims a longer life than any bearer has")
        return Bearer(
            subject=claims["sub"],
            token_id=claims["jti"],
            login_id=claims.get("lid"),
            expires_at=claims["exp"] * MICROSECONDS,
            access=dict(map(_entry, claims["access"])),
            access_key_id=claims.get("akid"),
            source=SourceIdentity(*claims["src"]) if claims.get("src") else None,
            account_id=claims.get("acc"),
            container_password_id=claims.get("cpid"),
        )

    async def may(
        self, bearer: Bearer, action: str, names: Sequence[Name], source_ip: Address | None
    ) -> frozenset[Name]:
        """Return the `names` on which current policies allow the bearer's subject the `action`.

        Raise `PolicyTooCostly` if the policies take more than `REQUEST_STEPS`.
        """
        found = await self.find_subject(bearer, source_ip)
        if found is None or not names:
            return frozenset()
        targets = await self.database.read(_targets, names)
        now = self.clock()
        budget = DecisionBudget()
        allowed = set()
        for name, target in zip(names, targets, strict=True):
            await budget.pause()
            verdict = verdict_on(
                found[0], action, target, name.repository, self.region, now, budget.work
            )
            if verdict.is_allowed:
                allowed.add(name)
        return frozenset(allowed)

    async def find_subject(
        self, bearer: Bearer, source_ip: Address | None
    ) -> tuple[AccessSubject, Login | None] | None:
        """Return a bearer's subject and login, as they are now; None if the login has ended."""
        login: Login | None = None
        if bearer.login_id is not None:
            login = await self.database.read(logins.find_login_by_id, bearer.login_id, self.clock())
        elif bearer.access_key_id is not None:
            key = await self.database.read(find_key, bearer.access_key_id, None, self.clock())
            login = key and key.login
        elif bearer.container_password_id is not None:
            # Late, because `dev` has no sign-in.
            from registry.services.access.container_passwords import find_password  # noqa: PLC0415

            given = bearer.container_password_id, source_ip, self.clock()
            password = await self.database.read(find_password, *given)
            login = password and password.login
        if login is None and bearer.subject:
            return None
        return await self._subject(login, source_ip), login

    async def may_describe(
        self, subject: AccessSubject, login: Login, budget: DecisionBudget, name: Name
    ) -> bool:
        """Return True if `subject` may see a repository of its own account.

        Raise `PolicyTooCostly` if the policies take more steps than `budget` has left.
        """
        await budget.pause()
        target = RepositoryAccess(login.account_id, None, None, None)
        now = self.clock()
        of = (subject, DESCRIBE, target, name.repository, self.region)
        return verdict_on(*of, now, budget.work).is_allowed

    async def _login(
        self,
        credential: ClientCredential,
        source_ip: Address | None,
        note_refusal: Callable[[RefusedLogin], None],
    ) -> Login:
        username, password = credential
        find: FindLogin
        if is_access_key_id(username):
            credential_id, find = username, find_key
        elif username != USERNAME:
            raise wrong_login()
        elif password.startswith(NAMED_LOGIN):
            from registry.services.access.container_passwords import find_password, password_id  # noqa: PLC0415 - as above

            credential_id, find = password_id(password), find_password
        else:
            login = await self.database.read(logins.find_login, hash_of(password), self.clock())
            if login is None:
                raise wrong_login()
            return login
        return await log_in(
            self.database, self.clock, credential_id, password, source_ip, find, note_refusal
        )

    def _check_logs_in(self, subject: AccessSubject, login: Login, now: int) -> None:
        """Raise `Unauthenticated` unless the login's role may log container clients in now."""
        assert subject.principal is not None
        action, resource = login_permission(self.region, login.account_id)
        caller = Caller(subject.principal.crn, login.account_id)
        question = Question(caller, action, resource, login.account_id, subject.source_ip, now)
        if not decide(question, subject.policies).is_allowed:
            raise wrong_login()

    async def _subject(self, login: Login | None, source_ip: Address | None) -> AccessSubject:
        if login is None:
            return AccessSubject(None, (), source_ip)
        principal = principal_of(login)
        return AccessSubject(principal, await self.source.policies_of(principal), source_ip)

    async def _entries(
        self, subject: AccessSubject, requested: Mapping[Name, tuple[str, ...]], now: int
    ) -> dict[Name, NameRights]:
        names = [name for name in requested if name != CATALOG]
        targets, uncounted = await self.database.read(_targets_and_uncounted, names)
        principal = subject.principal
        crn = "" if principal is None else principal.crn
        budget = DecisionBudget()
        entries = {}
        for name, target in zip(names, targets, strict=True):
            verdicts: dict[str, Verdict] = {}
            for action in requested[name]:
                await budget.pause()
                permission = PERMISSIONS[action]
                verdicts[action] = verdict_on(
                    subject, permission, target, name.repository, self.region, now, budget.work
                )
            # Not evaluated for denied names: the result or its cost would reveal what exists.
            counts = not any(each.is_allowed for each in verdicts.values()) or _counts(
                crn, uncounted.get(target.account_id or "", ()), budget.work
            )
            is_own = principal is not None and principal.account_id == target.account_id
            entries[name] = _entry_of(verdicts, counts, is_own=is_own)
        if CATALOG in requested:
            may_list = could_allow(subject.policies, DESCRIBE, subject.source_ip, now)
            entries[CATALOG] = NameRights(("*",), ()) if may_list else NameRights((), ("*",))
        return entries


def _entry_of(verdicts: Mapping[str, Verdict], counts: bool, *, is_own: bool) -> NameRights:  # noqa: FBT001
    """Return the rights on a name; only the own account sees reasons, which reveal what exists."""
    granted = tuple(action for action, verdict in verdicts.items() if verdict.is_allowed)
    denied = tuple(action for action in verdicts if action not in granted)
    reasons = tuple(verdicts[action].name.lower() for action in denied) if is_own else ()
    return NameRights(granted, denied, counts, reasons)


def _counts(crn: str, uncounted_pullers: Sequence[str], work: StepBudget) -> bool:
    try:
        return counts_pulls_of(crn, uncounted_pullers, work)
    except TooCostly:
        raise too_costly() from None


def _targets(tx: Connection, names: Sequence[Name]) -> list[RepositoryAccess]:
    return [policies.find_repository_access(tx, name.handle, name.repository) for name in names]


def _targets_and_uncounted(
    tx: Connection, names: Sequence[Name]
) -> tuple[list[RepositoryAccess], Mapping[str, Sequence[str]]]:
    """Return the repositories' access rows, and each account's patterns of uncounted pullers."""
    targets = _targets(tx, names)
    accounts = sorted({each.account_id for each in targets if each.account_id is not None})
    return targets, settings.uncounted_pullers_of(tx, accounts)


def _claim(name: Name, entry: NameRights) -> dict[str, object]:
    kind, text = ("registry", "catalog") if name == CATALOG else ("repository", str(name))
    uncounted = {} if entry.counts_pulls else {"uncounted": True}
    reasons = {"reasons": entry.reasons} if entry.reasons else {}
    return {
        "type": kind,
        "name": text,
        "actions": entry.granted,
        "denied": entry.denied,
        **uncounted,
        **reasons,
    }


def _entry(claim: Mapping[str, Any]) -> tuple[Name, NameRights]:
    name = CATALOG if claim["type"] == "registry" else parse_name(claim["name"])
    counts = "uncounted" not in claim
    reasons = tuple(claim.get("reasons", ()))
    return name, NameRights(tuple(claim["actions"]), tuple(claim["denied"]), counts, reasons)
