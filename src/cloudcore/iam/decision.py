"""Decide if a caller may do an action on a resource, by identity and resource policies.

1. A matching deny in an identity policy or the resource policy refuses.
2. A caller of the resource's account needs an allow in an identity policy, or an allow in the
   resource policy that names the caller or the account; an allow for ``*`` does not count.
3. A caller of another account needs an allow in an identity policy and one in the resource policy,
   even if the resource is public.
4. An unauthenticated caller needs an allow for ``*`` in the resource policy.
5. Otherwise the action is refused.

Tenants write the policies and so determine how long evaluation takes. Therefore a decision has a
`StepBudget`, and the action is refused when the budget is exhausted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from cloudcore.iam.patterns import StepBudget, TooCostly
from cloudcore.iam.policy import EVERYONE, Effect, Policy, PolicyStatement

DECISION_STEPS: Final = 13_000_000
"""Budget of a decision whose question has no `StepBudget`: some 5 ms. It suffices for policies
within `policy.MAX_PRINCIPAL_BYTES` on a resource whose CRN has at most 300 characters, since a byte
of a policy then costs at most 300 steps. In the size of a policy, the handle of another account
counts as many bytes as an account's id, whether or not the account exists."""


REQUEST_STEPS: Final = 20 * DECISION_STEPS
"""Budget of all decisions for one request: some 100 ms."""


class Caller(NamedTuple):
    """A signed-in principal, as policies see it."""

    crn: str
    """CRN of the service account or user; for a role session, of the role."""
    account_id: str | None
    """Id of the caller's account; for a person, of the personal organization. None if the caller
    belongs to no account."""


class Question(NamedTuple):
    """Asks if `caller`, at `source_ip` and `now`, may do `action` on `resource`."""

    caller: Caller | None
    """None for an unauthenticated client."""
    action: str
    resource: str
    """CRN of the resource."""
    resource_account_id: str
    source_ip: IPv4Address | IPv6Address | None
    now: int
    """Microseconds since the epoch."""
    work: StepBudget | None = None
    """The budget that this decision shares with others; None for its own `DECISION_STEPS`."""


class Verdict(Enum):
    """The result of a decision, with its reason; only `ALLOWED` allows."""

    ALLOWED = "allowed"
    EXPLICIT_DENY = "one of your policies denies it"
    RESOURCE_DENY = "the resource's own policy denies it"
    NO_ALLOW = "none of your policies allows it"
    NEEDS_RESOURCE_POLICY = "the resource's own policy must allow it to your account too"
    NEEDS_IDENTITY_POLICY = "a policy of your own account must allow it too"
    NEEDS_OWNER = "your part in the organization does not allow it; ask one of its owners"
    """For persons, where the role in the organization takes the place of a resource policy."""
    TOO_COSTLY = "the policies take too long to evaluate; use fewer or simpler patterns"

    @property
    def is_allowed(self) -> bool:
        """Return True if the caller may do the action."""
        return self is Verdict.ALLOWED


DENIALS: Final = (Verdict.EXPLICIT_DENY, Verdict.RESOURCE_DENY, Verdict.TOO_COSTLY)
"""The verdicts that stand even if another policy allows the action."""


class Matched(NamedTuple):
    """A statement that determined the decision, with its policy."""

    policy: Policy
    statement: PolicyStatement


class Trace:
    """Records the statements that determined a decision; pass one to `decide`."""

    def __init__(self) -> None:
        self.identity: Matched | None = None
        """The deciding statement of the caller's identity policies; None if none matched."""
        self.resource: Matched | None = None
        """The deciding statement of the resource policy; None if none matched."""


def decide(
    question: Question,
    identity: Iterable[Policy],
    resource: Policy | None = None,
    trace: Trace | None = None,
) -> Verdict:
    """Decide `question` by the caller's `identity` policies and the `resource` policy.

    If `trace` is passed, record there which statements determined the decision.
    """
    if question.work is None:
        question = question._replace(work=StepBudget(DECISION_STEPS))
    try:
        return _decide(question, identity, resource, trace or Trace())
    except TooCostly:
        return Verdict.TOO_COSTLY


def _decide(
    question: Question, identity: Iterable[Policy], resource: Policy | None, trace: Trace
) -> Verdict:
    caller = question.caller
    is_insider = caller is not None and caller.account_id == question.resource_account_id
    own = None if caller is None else _own_effect(question, identity, trace)
    if own is Effect.DENY:
        return Verdict.EXPLICIT_DENY
    attached = resource and _attached_effect(question, resource, trace, is_insider=is_insider)
    if attached is Effect.DENY:
        return Verdict.RESOURCE_DENY
    if caller is None:
        return Verdict.ALLOWED if attached else Verdict.NO_ALLOW
    if (own and attached) or (is_insider and (own or attached)):
        return Verdict.ALLOWED
    if attached:
        return Verdict.NEEDS_IDENTITY_POLICY
    return Verdict.NEEDS_RESOURCE_POLICY if own and not is_insider else Verdict.NO_ALLOW


def could_allow(
    identity: Iterable[Policy],
    action: str,
    source_ip: IPv4Address | IPv6Address | None,
    now: int,
) -> bool:
    """Return True if `identity` policies might allow `action` on some resource.

    If False, the caller can be refused before anything is looked up, so that the refusal does not
    reveal which ids exist.
    """
    allowed = False
    for policy in identity:
        about = policy.about(action)
        for deny in about.denies:
            if deny.resources.match_everything and deny.conditions.hold(source_ip, now):
                return False
        allowed = allowed or any(allow.conditions.hold(source_ip, now) for allow in about.allows)
    return allowed


def _own_effect(question: Question, identity: Iterable[Policy], trace: Trace) -> Effect | None:
    """Return the combined effect of the caller's identity policies, or None if none matches."""
    effect = None
    for policy in identity:
        about = policy.about(question.action)
        for deny in about.denies:
            if _covers(deny, question):
                trace.identity = Matched(policy, deny)
                return Effect.DENY
        if effect is None:
            for allow in about.allows:
                if _covers(allow, question):
                    effect = Effect.ALLOW
                    trace.identity = Matched(policy, allow)
                    break
    return effect


def _covers(statement: PolicyStatement, question: Question) -> bool:
    return statement.resources.match(question.resource, question.work) and (
        _holds(statement, question)
    )


def _holds(statement: PolicyStatement, question: Question) -> bool:
    if question.work is not None:
        question.work.spend(statement.conditions.steps)
    return statement.conditions.hold(question.source_ip, question.now)


def _attached_effect(
    question: Question, policy: Policy, trace: Trace, *, is_insider: bool
) -> Effect | None:
    """Return the effect of the resource policy for this caller, or None if nothing matches."""
    about = policy.about(question.action)
    for deny in about.denies:
        if _concerns(deny, question) and _holds(deny, question):
            trace.resource = Matched(policy, deny)
            return Effect.DENY
    for allow in about.allows:
        concerns = _names if is_insider else _concerns
        if concerns(allow, question) and _holds(allow, question):
            trace.resource = Matched(policy, allow)
            return Effect.ALLOW
    return None


def _concerns(statement: PolicyStatement, question: Question) -> bool:
    return EVERYONE in statement.principals or _names(statement, question)


def _names(statement: PolicyStatement, question: Question) -> bool:
    caller = question.caller
    return caller is not None and (
        caller.crn in statement.principals or caller.account_id in statement.principals
    )
