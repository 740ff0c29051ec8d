"""Decide whether a caller may assume a role: by its trust policy, and the caller's permission."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.iam.decision import DENIALS, Caller, Question, Verdict, decide
from cloudcore.iam.patterns import Patterns, StepBudget
from cloudcore.iam.policy import TRUST_ACTION, Effect, Policy, PolicyKind, PolicyStatement
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.iam.service_roles import service_crn
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rights.documents import means_principal, read_stored
from cloudcore.identity.rows.identity_providers import list_providers_of_person
from cloudcore.identity.rows.roles import AssumableRole

ASSIGNED: Final = Policy(
    (PolicyStatement(Effect.ALLOW, Patterns((TRUST_ACTION,)), resources=Patterns(("*",))),)
)
"""The identity policy of a person to whom the role is assigned."""


class RoleCaller(NamedTuple):
    """A caller that wants to assume roles, with the client address and time of its request."""

    source: Principal
    providers: Sequence[str]
    """CRNs of the active identity providers that a person is linked to; empty for others."""
    source_ip: IPv4Address | IPv6Address | None
    now: int
    """Microseconds since the epoch."""


def find_role_caller(
    tx: Connection,
    source: Principal,
    source_ip: IPv4Address | IPv6Address | None,
    now: int,
    *,
    locks: bool = True,
) -> RoleCaller:
    """Return a caller with the identity providers through which roles may trust it.

    The providers are locked until the transaction ends, so that they stay active, unless `locks` is
    False.
    """
    providers = []
    if source.kind is PrincipalKind.USER:
        found = list_providers_of_person(tx, source.id, locks=locks)
        providers = [iam_crn(owner, "identity-provider", ident) for owner, ident in found]
    return RoleCaller(source, providers, source_ip, now)


def verdict_on(
    role_caller: RoleCaller,
    role: AssumableRole,
    policies: Sequence[Policy],
    work: StepBudget | None = None,
) -> Verdict:
    """Decide if a caller may assume a role: permission and trust must allow, and neither deny.

    `policies` are the caller's. A trust policy that names an identity provider admits the persons
    linked to the provider, while it is active and they belong to its organization. `work` is a step
    budget to share; None for a budget of its own.
    """
    source = role_caller.source
    crn = source.crn if means_principal(role.trust_ids, source.crn, source.id) else ""
    trust = read_stored(role.trust_policy, role.trust_ids, PolicyKind.TRUST)
    resource = role.crn
    verdicts = [
        decide(_question(role_caller, name, resource, work), policies, trust)
        for name in (crn, *role_caller.providers)
    ]
    denials = [verdict for verdict in verdicts if verdict in DENIALS]
    allowed = [verdict for verdict in verdicts if verdict.is_allowed]
    return (denials or allowed or verdicts)[0]


def admits(
    tx: Connection,
    role: AssumableRole,
    person: Principal,
    source_ip: IPv4Address | IPv6Address | None,
    now: int,
) -> bool:
    """Return True if a person may now assume a role that is assigned to the person.

    The trust policy and the account are checked, not the assignment. Nothing is locked.
    """
    role_caller = find_role_caller(tx, person, source_ip, now, locks=False)
    return verdict_on(role_caller, role, (ASSIGNED,)).is_allowed and role.account_status == "active"


def trusts_service(role: AssumableRole, service: str, now: int) -> bool:
    """Return True if a role's trust policy lets a service of the platform act in it.

    A service needs no permission; the caller that passes the role to the service needs
    `iam:PassRole`.
    """
    question = Question(
        caller=Caller(service_crn(service), None),
        action=TRUST_ACTION,
        resource=role.crn,
        resource_account_id="",
        source_ip=None,
        now=now,
    )
    trust = read_stored(role.trust_policy, role.trust_ids, PolicyKind.TRUST)
    return decide(question, (ASSIGNED,), trust).is_allowed


def has_permission(role_caller: RoleCaller, policies: Sequence[Policy], resource: str) -> bool:
    """Return True if the caller's own policies allow it to assume the role with this CRN."""
    question = _question(role_caller, role_caller.source.crn, resource, None)
    # This verdict means that only the trust is missing.
    return decide(question, policies) is Verdict.NEEDS_RESOURCE_POLICY


def _question(
    role_caller: RoleCaller, crn: str, resource: str, work: StepBudget | None
) -> Question:
    """Build the question for a trust policy.

    `crn` is a name that the policy may use for the caller: its own CRN, or that of a provider.
    """
    return Question(
        caller=Caller(crn, role_caller.source.account_id),
        action=TRUST_ACTION,
        resource=resource,
        resource_account_id="",  # treats every caller as foreign: both must allow
        source_ip=role_caller.source_ip,
        now=role_caller.now,
        work=work,
    )
