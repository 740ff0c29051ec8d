"""``/v1/policy-simulations``: decisions for a principal, actions and a resource.

The decision is the evaluator's own (`cloudcore.iam.decision`), with its trace. Policies of another
account are never read, so that nothing about other accounts is revealed: that half of the decision
is unknown unless its document is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Any, Final, Literal, NamedTuple
from uuid import UUID

import msgspec
from litestar import post
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, invalid_field
from cloudcore.iam.decision import Caller, Matched, Question, Trace, Verdict, decide
from cloudcore.iam.policy import EVERYONE, MAX_PRINCIPAL_BYTES, Policy, PolicyKind, policy_of
from cloudcore.iam.vocabulary import OwnPolicy
from cloudcore.identity.names import iam_crn, missing
from cloudcore.identity.rights.documents import names_principal, read_stored, stored_document
from cloudcore.identity.routes.common import Document, parse_crn
from cloudcore.identity.rows.accounts import find_account
from cloudcore.identity.rows.policies import POLICIES, PolicyRow, list_policies_of
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS
from cloudcore.resource_names import Crn, parse_uuid
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody, Timestamp, moment_of

MAX_ACTIONS: Final = 50

Decision = Literal["allowed", "denied", "implicitly_denied", "unknown"]
PolicyOutcome = Literal["allow", "deny", "none", "unknown"]

_FIND: Final = {"role": ROLES.find_named, "service-account": SERVICE_ACCOUNTS.find_named}
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
_DENIED: Final = (Verdict.EXPLICIT_DENY, Verdict.RESOURCE_DENY, Verdict.TOO_COSTLY)


class Simulation(NamedTuple):
    """A simulation. Its CRNs name accounts by id."""

    principal: Crn | None
    """None for an unauthenticated client."""
    resource: Crn
    account_id: str
    """The account whose policies may be read."""
    asked: SimulatePolicy
    own_policy: OwnPolicy | None
    """How policies of such resources are read; None if they have none."""
    caller: Caller | None = None
    """The principal as policies see it, once they are loaded."""
    identity: tuple[KnownPolicy, ...] | None = None
    """The principal's policies, or None if unknown."""
    attached: tuple[KnownPolicy, ...] | None = None
    """The resource's policy, at most one, or None if unknown."""


class KnownPolicy(NamedTuple):
    """A parsed policy, and its document."""

    policy: Policy
    document: Any
    row: PolicyRow | None = None
    """None for the resource's own, and for a document that was given."""


class DecidingStatement(ResponseBody):
    """A statement that decided."""

    source: Literal["identity", "resource"]
    policy: ResourceRef | None
    """Null for the resource's own policy, and for a document of the request."""
    index: int
    """Its place in the document, from 0."""
    sid: str | None
    effect: Literal["allow", "deny"]


class ActionResult(ResponseBody):
    """The decision on one action."""

    action: str
    decision: Decision
    """``unknown`` if it depends on policies of another account."""
    reason: str
    identity: PolicyOutcome
    """What the principal's policies say; ``unknown`` if they are another account's."""
    resource: PolicyOutcome
    """What the resource's own policy says; ``unknown`` also where a deny made it needless."""
    statements: Sequence[DecidingStatement]


def load_policies_of(tx: Connection, simulation: Simulation) -> Simulation:
    """Return a simulation with its policies.

    Raise `NotFound` if the account has no such principal, `InvalidInput` if a given document is not
    a policy, or they are too large together.
    """
    principal = simulation.principal
    is_own = principal is not None and principal.account == simulation.account_id
    principal_id = _principal_id(tx, principal) if principal is not None and is_own else ""
    identity: tuple[KnownPolicy, ...] | None = None
    if simulation.asked.policies is not None:
        identity = _given(tx, simulation.asked.policies, simulation.account_id)
    elif principal is None:
        identity = ()
    elif is_own:
        rows = list_policies_of(tx, simulation.account_id, principal_id)
        identity = tuple(map(_attached, rows))
    caller = None if principal is None else Caller(str(principal), principal.account)
    attached, ids = _resource_policy(tx, simulation)
    if caller is not None and is_own and not names_principal(ids, caller.crn, principal_id):
        caller = caller._replace(crn="")  # the name meant another principal when it was written
    return simulation._replace(caller=caller, identity=identity, attached=attached)


def _principal_id(tx: Connection, principal: Crn) -> str:
    found = _FIND[principal.type](tx, principal.account, principal.name)
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
    """Return the resource's policy, and the ids of the names in it, or None if unknown."""
    own, resource = simulation.own_policy, simulation.resource
    if own is None:
        return (), "{}"
    document = simulation.asked.resource_policy
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
    loaded: Simulation, action: str, source_ip: IPv4Address | IPv6Address | None, now: int
) -> ActionResult:
    """Decide on one action, with the evaluator's trace."""
    own = loaded.own_policy
    concerns = own is not None and action in own.actions
    attached = (loaded.attached or ()) if concerns else ()
    question = Question(
        caller=loaded.caller,
        action=action,
        resource=str(loaded.resource),
        # No account has the empty id: then the resource's policy must allow everyone.
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
    return "denied" if verdict in _DENIED else "implicitly_denied"


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


_PRINCIPALS: Final = ("role", "service-account")
_UNKNOWN_ACCOUNT: Final = str(UUID(int=0))
_CrnText = Annotated[str, Meta(min_length=1, max_length=700)]


class SimulatePolicy(RequestBody):
    """A question to the policies; one of principal and resource is of the caller's account.

    Name another account by its id: its handle is not looked up, and means no account.
    """

    principal: _CrnText
    """CRN of a role or service account; ``*`` is a client that has not signed in."""
    actions: Annotated[
        list[Annotated[str, Meta(max_length=100)]],
        Meta(min_length=1, max_length=MAX_ACTIONS),
    ]
    resource: _CrnText
    """CRN of the resource, which need not exist."""
    source_ip: Annotated[str, Meta(max_length=45)] | None = None
    """Address of the client, for conditions; without one it is in no network."""
    time: Timestamp | None = None
    """For conditions; now, if not given."""
    policies: Annotated[list[Document], Meta(max_length=10)] | None = None
    """Documents to try in place of those attached to the principal."""
    resource_policy: Document | UnsetType | None = UNSET
    """A document to try in place of the resource's own; null: as if it had none."""


class SimulationRecord(ResponseBody):
    """The decisions on all actions."""

    principal: str
    resource: str
    results: Sequence[ActionResult]


class OneSimulation(ResponseBody):
    """The body of an answer: a simulation."""

    simulation: SimulationRecord


@post(
    "/v1/policy-simulations",
    status_code=200,
    opt={"action": "iam:SimulatePolicy", "statuses": (404,)},
)
async def simulate_policy(data: JSONBody[SimulatePolicy], ctx: Context) -> OneSimulation:
    """Tell whether a principal may do actions on a resource, and which statements decide.

    The caller needs `iam:SimulatePolicy` on the principal (on its own account, if the principal is
    of another or has not signed in), and to see the resource's own policy the action that reads
    it. Policies of other accounts are not read: what depends on them is `unknown`.
    """
    for action in data.actions:
        ctx.vocabulary.check_action(action, "actions")
    source_ip = _address(data.source_ip)
    wanted = await ctx.database.read(_wanted, ctx, data)
    await _authorize(ctx, wanted, data.actions)
    loaded = await ctx.database.read(load_policies_of, wanted)
    if data.policies is not None:
        for each in loaded.identity or ():
            # As written: an error must not show the id that a handle means.
            ctx.vocabulary.check(policy_of(each.document, PolicyKind.IDENTITY))
    now = ctx.clock() if data.time is None else moment_of(data.time)
    results = []
    for action in data.actions:
        results.append(evaluate(loaded, action, source_ip, now))
        await asyncio.sleep(0)  # a decision may take milliseconds; let other requests run
    # As they were given, with handles.
    record = SimulationRecord(principal=data.principal, resource=data.resource, results=results)
    return OneSimulation(simulation=record)


def _wanted(tx: Connection, ctx: RequestContext, data: SimulatePolicy) -> Simulation:
    account_id = account_of(ctx)
    own = find_account(tx, account_id)
    handle = "" if own is None else own.handle
    resource = _crn(data.resource, "resource", handle, account_id)
    kind = ctx.vocabulary.kind_of(resource, "resource")
    principal = (
        None if data.principal == EVERYONE else _principal(data.principal, handle, account_id)
    )
    if account_id not in (resource.account, principal and principal.account):
        raise InvalidInput(
            "neither the principal nor the resource is of your account",
            field="resource",
            reason="foreign_account",
        )
    if data.resource_policy is not UNSET and kind.own_policy is None:
        raise invalid_field(
            "resource_policy", f"a {kind.type} has no policy of its own", "not_allowed"
        )
    return Simulation(principal, resource, account_id, data, kind.own_policy)


def _crn(text: str, field: str, handle: str, account_id: str) -> Crn:
    """Parse a CRN, with the account by id.

    The `handle` of the caller's own account is replaced. Another handle is not looked up, because
    the answer would reveal if an account has it; it stands for an account that no policy names.
    """
    crn = parse_crn(text, field)
    if crn.account == handle:
        return crn._replace(account=account_id)
    return crn if parse_uuid(crn.account) else crn._replace(account=_UNKNOWN_ACCOUNT)


def _principal(text: str, handle: str, account_id: str) -> Crn:
    crn = _crn(text, "principal", handle, account_id)
    if crn.service != "iam" or crn.region or crn.type not in _PRINCIPALS:
        words = "the CRN of a role or service account, or *"
        if crn.type == "user":
            words += "; a person acts by a role, so name the role"
        raise invalid_field("principal", words, "malformed_crn")
    return crn


def _address(text: str | None) -> IPv4Address | IPv6Address | None:
    try:
        return None if text is None else ip_address(text)
    except ValueError:
        raise invalid_field("source_ip", "an address, such as 192.0.2.7") from None


async def _authorize(ctx: RequestContext, wanted: Simulation, actions: Sequence[str]) -> None:
    """Check that the caller may simulate for the principal, and see the resource's policy."""
    account_id, own = wanted.account_id, wanted.own_policy
    if wanted.principal is not None and wanted.principal.account == account_id:
        ctx.authorize(str(wanted.principal))
    else:
        account = await ctx.database.read(find_account, account_id)
        ctx.authorize(iam_crn(account_id, "account", account.handle if account else account_id))
    if (
        own is not None
        and wanted.resource.account == account_id
        and wanted.asked.resource_policy is UNSET
        and not own.actions.isdisjoint(actions)
    ):
        ctx.authorize(str(wanted.resource), action=own.read_action)
