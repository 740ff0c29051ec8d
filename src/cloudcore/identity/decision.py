"""Whether a caller may do something: one evaluator for identity and resource policies (E2).

1. Any matching deny, in either policy, refuses.
2. Same account: an allow in the caller's identity policies, or in the resource policy where it
   names the caller or its account; ``*`` does not elevate insiders.
3. Another account: an allow in both (rule 8), also where the resource is public.
4. Anonymous: an allow for ``*``.
5. Otherwise refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from cloudcore.identity.policy import Effect, Policy, Statement


class Caller(NamedTuple):
    """A signed-in principal, as policies see it."""

    crn: str
    """Its own name: a service account's, a user's, or, of a role session, the role's."""
    account_id: str


class Question(NamedTuple):
    """What is asked: may `caller` do `action` on `resource` now, from there."""

    caller: Caller | None
    action: str
    resource: str
    """CRN of the resource."""
    resource_account_id: str
    source_ip: IPv4Address | IPv6Address | None
    now: int
    """Microseconds since the epoch."""


class Verdict(Enum):
    """The answer, with its reason; only `ALLOWED` allows."""

    ALLOWED = "allowed"
    EXPLICIT_DENY = "a policy denies it"
    NO_ALLOW = "no policy allows it"
    NEEDS_RESOURCE_POLICY = "the resource's own policy must allow it to your account too"
    NEEDS_IDENTITY_POLICY = "a policy of your own account must allow it too"

    @property
    def is_allowed(self) -> bool:
        """Say whether the caller may."""
        return self is Verdict.ALLOWED


def decide(
    question: Question, identity: Iterable[Policy], resource: Policy | None = None
) -> Verdict:
    """Answer `question` by the caller's `identity` policies and the `resource` policy."""
    own = [
        statement
        for policy in identity
        for statement in policy.statements
        if question.caller is not None and _covers(statement, question, on_resource=False)
    ]
    attached = [
        statement
        for statement in (resource.statements if resource else ())
        if _covers(statement, question, on_resource=True)
    ]
    if any(statement.effect is Effect.DENY for statement in (*own, *attached)):
        return Verdict.EXPLICIT_DENY
    caller = question.caller
    if caller is None:
        return Verdict.ALLOWED if attached else Verdict.NO_ALLOW
    if caller.account_id == question.resource_account_id:
        named = any(_names_insider(statement, caller) for statement in attached)
        return Verdict.ALLOWED if own or named else Verdict.NO_ALLOW
    if own and attached:
        return Verdict.ALLOWED
    if attached:
        return Verdict.NEEDS_IDENTITY_POLICY
    return Verdict.NEEDS_RESOURCE_POLICY if own else Verdict.NO_ALLOW


def _covers(statement: Statement, question: Question, *, on_resource: bool) -> bool:
    """Say whether a statement speaks of what is asked."""
    if on_resource:
        if not _names(statement, question.caller):
            return False
    elif not any(pattern.matches(question.resource) for pattern in statement.resources):
        return False
    return any(pattern.matches(question.action) for pattern in statement.actions) and (
        statement.conditions.hold(question.source_ip, question.now)
    )


def _names(statement: Statement, caller: Caller | None) -> bool:
    principals = statement.principals
    if "*" in principals:
        return True
    return caller is not None and (caller.account_id in principals or caller.crn in principals)


def _names_insider(statement: Statement, caller: Caller) -> bool:
    return caller.account_id in statement.principals or caller.crn in statement.principals
