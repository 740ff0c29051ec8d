"""``/v1/policy-simulations``: decisions for a principal, actions and a resource."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Final
from uuid import UUID

from litestar import post
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, invalid_field
from cloudcore.iam.policy import EVERYONE, PolicyKind, policy_of
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rights.simulation import (
    MAX_ACTIONS,
    ActionResult,
    Simulation,
    evaluate,
    load_policies_of,
)
from cloudcore.identity.routes.common import Document, parse_crn
from cloudcore.identity.rows.accounts import find_account
from cloudcore.resource_names import Crn, parse_uuid
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody, Timestamp, moment_of

_PRINCIPALS: Final = ("role", "service-account")
_UNKNOWN_ACCOUNT: Final = str(UUID(int=0))
_CrnText = Annotated[str, Meta(min_length=1, max_length=700)]


class SimulatePolicy(RequestBody):
    """A question about policies; the principal or the resource must be of the caller's account.

    Name another account by its id: handles of other accounts are not looked up, and match none.
    """

    principal: _CrnText
    """CRN of a role or service account, or ``*`` for a client that has not signed in."""
    actions: Annotated[
        list[Annotated[str, Meta(max_length=100)]],
        Meta(min_length=1, max_length=MAX_ACTIONS),
    ]
    resource: _CrnText
    """CRN of the resource, which need not exist."""
    source_ip: Annotated[str, Meta(max_length=45)] | None = None
    """Address of the client, for conditions; without it, the client is in no network."""
    time: Timestamp | None = None
    """Time of the request, for conditions; by default now."""
    policies: Annotated[list[Document], Meta(max_length=10)] | None = None
    """Policy documents to use instead of those attached to the principal."""
    resource_policy: Document | UnsetType | None = UNSET
    """A policy document to use instead of the resource's own; null for none."""


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
    """Return whether a principal may do actions on a resource, and which statements decide.

    The caller needs `iam:SimulatePolicy` on the principal, or on the caller's own account if the
    principal is of another account or has not signed in. If the resource's own policy is needed,
    the caller also needs the action that reads it. Policies of other accounts are not read:
    decisions that depend on them are `unknown`.
    """
    for action in data.actions:
        ctx.vocabulary.check_action(action, "actions")
    source_ip = _address(data.source_ip)
    wanted = await ctx.database.read(_wanted, ctx, data)
    await _authorize(ctx, wanted, data.actions)
    loaded = await ctx.database.read(load_policies_of, wanted)
    if data.policies is not None:
        for each in loaded.identity or ():
            # The document as written, since errors must not reveal the ids of handles.
            ctx.vocabulary.check(policy_of(each.document, PolicyKind.IDENTITY))
    now = ctx.clock() if data.time is None else moment_of(data.time)
    results = []
    for action in data.actions:
        results.append(evaluate(loaded, action, source_ip, now))
        await asyncio.sleep(0)  # a decision may take milliseconds; let other requests run
    # CRNs as in the request, with handles.
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
    return Simulation(
        principal, resource, account_id, data.policies, data.resource_policy, kind.own_policy
    )


def _crn(text: str, field: str, handle: str, account_id: str) -> Crn:
    """Parse a CRN; replace an account handle by its id.

    Only `handle`, that of the caller's own account, is resolved. Looking up another handle would
    reveal if an account has it, so it is replaced by the id of an account that no policy names.
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
    """Raise `AccessDenied` unless the caller may simulate, and may see the resource policy used."""
    account_id, own = wanted.account_id, wanted.own_policy
    if wanted.principal is not None and wanted.principal.account == account_id:
        ctx.authorize(str(wanted.principal))
    else:
        account = await ctx.database.read(find_account, account_id)
        ctx.authorize(iam_crn(account_id, "account", account.handle if account else account_id))
    if (
        own is not None
        and wanted.resource.account == account_id
        and wanted.resource_policy is UNSET
        and not own.actions.isdisjoint(actions)
    ):
        ctx.authorize(str(wanted.resource), action=own.read_action)
