"""Simulate decisions on a principal, actions and a resource, with the deciding statements.

Decisions are made by the evaluator itself (`cloudcore.iam.decision`), with its trace. Policies of
other accounts are never read, so that nothing about them is revealed: their part of the decision is
unknown unless the request contains the document.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from cloudcore.db.base import Connection
from cloudcore.errors import invalid_field
from cloudcore.iam.decision import DENIALS, Caller, Matched, Question, Trace, Verdict, decide
from cloudcore.iam.policy import MAX_PRINCIPAL_BYTES, Policy, PolicyKind
from cloudcore.iam.vocabulary import OwnPolicy
from cloudcore.identity.names import missing
from cloudcore.identity.rights.documents import (
    FIND_NAMED,
    means_principal,
    read_stored,
    stored_document,
)
from cloudcore.identity.rows.policies import POLICIES, PolicyRow, list_policies_of
from cloudcore.resource_names import Crn
from cloudcore.web.bodies import ResourceRef
from cloudcore.wire import ResponseBody

MAX_ACTIONS: Final = 50

Decision = Literal["allowed", "denied", "implicitly_denied", "unknown"]
PolicyOutcome = Literal["allow", "deny", "none", "unknown"]

_REASONS: Final = {
    Verdict.ALLOWED: "the policies allow it",
    Verdict.EXPLICIT_DENY: "one of the principal's policies denies it",
    Verdict.RESOURCE_DENY: "the resource's own policy denies it",
    Verdict.NO_ALLOW: "no policy allows it",
    Verdict.NEEDS_RESOURCE_POLICY: (
        "the principal's policies allow it, but the resource's own policy must allow it too"
    ),
    Verdict.NEEDS_IDENTITY_POLICY: (
        "the resource's own policy allows it, but the principal's policies must allow it too"
    ),
    Verdict.TOO_COSTLY: Verdict.TOO_COSTLY.value,
}


class Simulation(NamedTuple):
    """A simulation to run. Its CRNs name accounts by id."""

    principal: Crn | None
    """None for an unauthenticated client."""
    resource: Crn
    account_id: str
    """The account whose policies may be read."""
    policies: Sequence[Any] | None
    """Policy documents to use instead of the principal's; None for the principal's."""
    resource_policy: Any
    """The policy document to use for the resource; None for no policy, UNSET for its stored one."""
    own_policy: OwnPolicy | None
    """How policies of resources of this kind are read; None if these have no policies."""


class KnownPolicy(NamedTuple):
    """A parsed policy, and its document."""

    policy: Policy
    document: Any
    row: PolicyRow | None = None
    """The stored policy; None for a resource policy, and for a document of the request."""


class LoadedPolicies(NamedTuple):
    """The policies of the principal and of the resource; None where they are unknown."""

    caller: Caller | None
    """The principal as policies see it; None for an unauthenticated client."""
    resource: Crn
    identity: tuple[KnownPolicy, ...] | None
    """The policies of the principal."""
    attached: tuple[KnownPolicy, ...] | None
    """The resource policy, or empty if there is none."""
    own_policy: OwnPolicy | None


class DecidingStatement(ResponseBody):
    """A statement that determined the decision."""

    source: Literal["identity", "resource"]
    policy: ResourceRef | None
    """Null for the resource's own policy, and for a document of the request."""
    index: int
    """The statement's index in the document, from 0."""
    sid: str | None
    effect: Literal["allow", "deny"]


class ActionResult(ResponseBody):
    """The decision on one action."""

    action: str
    decision: Decision
    """``unknown`` if the decision depends on policies of another account."""
    reason: str
    identity: PolicyOutcome
    """The effect of the principal's policies; ``unknown`` if they are another account's."""
    resource: PolicyOutcome
    """The effect of the resource's own policy; ``unknown`` if it is another account's, or was not
    needed because of a deny."""
    statements: Sequence[DecidingStatement]


def load_policies_of(tx: Connection, simulation: Simulation) -> LoadedPolicies:
    """Return the policies for a simulation.

    Raise `NotFound` if the account has no such principal, `InvalidInput` if a document in the
    request is not a policy, or the documents are too large together.
    """
    principal = simulation.principal
    is_own = principal is not None and principal.account == simulation.account_id
    principal_id = _principal_id(tx, principal) if principal is not None and is_own else ""
    identity: tuple[KnownPolicy, ...] | None = None
    if simulation.policies is not None:
        identity = _given(tx, simulation.policies, simulation.account_id)
    elif principal is None:
        identity = ()
    elif is_own:
        rows = list_policies_of(tx, simulation.account_id, principal_id)
        identity = tuple(map(_attached, rows))
    caller = None if principal is None else Caller(str(principal), principal.account)
    attached, ids = _resource_policy(tx, simulation)
    if caller is not None and is_own and not means_principal(ids, caller.crn, principal_id):
        caller = caller._replace(crn="")  # the name meant another principal when it was written
    return LoadedPolicies(caller, simulation.resource, identity, attached, simulation.own_policy)


def _principal_id(tx: Connection, principal: Crn) -> str:
    found = FIND_NAMED[principal.type](tx, principal.account, principal.name)
    if found is None:
        raise missing(principal.type.replace("-", " "))
    return found.id


def _given(tx: Connection, documents: Sequence[Any], account_id: str) -> tuple[KnownPolicy, ...]:
    stored = [stored_document(tx, each, PolicyKind.IDENTITY, account_id) for each in documents]
    if sum(len(each.text) for each in stored) > MAX_PRINCIPAL_BYTES:
        raise invalid_field(
            "policies", f"at most {MAX_PRINCIPAL_BYTES} bytes together", "out_of_range"
        )
    pairs = zip(stored, documents, strict=True)
    return tuple(KnownPolicy(each.policy, document) for each, document in pairs)


def _attached(row: PolicyRow) -> KnownPolicy:
    policy = read_stored(row.document, row.account_ids, PolicyKind.IDENTITY)
    return KnownPolicy(policy, msgspec.json.decode(row.document), row)


def _resource_policy(
    tx: Connection, simulation: Simulation
) -> tuple[tuple[KnownPolicy, ...] | None, str]:
    """Return (the resource's policy, the encoded ids of its names).

    The first is None if the policy is unknown, and empty if there is none.
    """
    own, resource = simulation.own_policy, simulation.resource
    if own is None:
        return (), "{}"
    document = simulation.resource_policy
    if document is not UNSET:
        if document is None:
            return (), "{}"
        stored = stored_document(tx, document, own.rules, resource.account)
        return (KnownPolicy(stored.policy, document),), "{}"
    if resource.account != simulation.account_id:
        return None, "{}"
    found = own.find(tx, resource)
    if found is None:
        return (), "{}"
    policy = read_stored(found.document, found.encoded_ids, own.rules)
    return (KnownPolicy(policy, msgspec.json.decode(found.document)),), found.encoded_ids


def evaluate(
    loaded: LoadedPolicies, action: str, source_ip: IPv4Address | IPv6Address | None, now: int
) -> ActionResult:
    """Decide on one action; return the decision with the deciding statements."""
    own = loaded.own_policy
    concerns = own is not None and action in own.actions
    attached = (loaded.attached or ()) if concerns else ()
    question = Question(
        caller=loaded.caller,
        action=action,
        resource=str(loaded.resource),
        # No account has the empty id, so the resource's policy must allow too.
        resource_account_id="" if concerns and own and own.is_required else loaded.resource.account,
        source_ip=source_ip,
        now=now,
    )
    trace = Trace()
    verdict = decide(
        question,
        [each.policy for each in loaded.identity or ()],
        attached[0].policy if attached else None,
        trace,
    )
    is_resource_unknown = concerns and loaded.attached is None
    lacks = {
        Verdict.NEEDS_RESOURCE_POLICY: is_resource_unknown,
        Verdict.NEEDS_IDENTITY_POLICY: loaded.identity is None,
    }
    decided = []
    if trace.identity is not None:
        decided.append(_decided("identity", trace.identity, loaded.identity or ()))
    if trace.resource is not None:
        decided.append(_decided("resource", trace.resource, attached))
    is_unread = is_resource_unknown or verdict is Verdict.EXPLICIT_DENY
    return ActionResult(
        action=action,
        decision=_decision(verdict, is_unknown=lacks.get(verdict, False)),
        reason=_REASONS[verdict]
        + ("; that is known to its account alone" if lacks.get(verdict) else ""),
        identity="unknown" if loaded.identity is None else _half(trace.identity),
        resource="unknown" if is_unread and concerns else _half(trace.resource),
        statements=decided,
    )


def _decision(verdict: Verdict, *, is_unknown: bool) -> Decision:
    if verdict.is_allowed:
        return "allowed"
    if is_unknown:
        return "unknown"
    return "denied" if verdict in DENIALS else "implicitly_denied"


def _half(matched: Matched | None) -> PolicyOutcome:
    return "none" if matched is None else matched.statement.effect.value


def _decided(
    source: Literal["identity", "resource"], matched: Matched, known: Sequence[KnownPolicy]
) -> DecidingStatement:
    of = next(each for each in known if each.policy is matched.policy)
    statements = matched.policy.statements
    place = next(at for at, each in enumerate(statements) if each is matched.statement)
    sid = of.document["statements"][place].get("sid")
    return DecidingStatement(
        source=source,
        policy=of.row and POLICIES.reference(of.row),
        index=place,
        sid=sid,
        effect=matched.statement.effect.value,
    )
