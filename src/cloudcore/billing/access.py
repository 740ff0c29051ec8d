"""Authorization of billing: who may see and pay the invoices of an organization.

A program or a role acts in an account, whose policies decide; it sees the invoices of that
account's organization. A person names an organization, and must have the role ``owner`` or
``billing`` in it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from cloudcore.account_rows import organization_of, role_in
from cloudcore.errors import NotFound
from cloudcore.iam.patterns import Patterns
from cloudcore.iam.policy import Effect, Policy, PolicyStatement
from cloudcore.resource_names import Crn, UuidParameter
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.organization_scope import authorize_organization

_ROLES: Final = ("owner", "billing")


OrganizationId = Annotated[
    UuidParameter,
    Meta(
        description="For a person: an organization of which the caller is an owner, or has the role"
        " `billing` in it.",
    ),
]


class Scope(msgspec.Struct, kw_only=True):
    """The organization that a request is about."""

    organization_id: OrganizationId | None = None


async def authorized(
    ctx: RequestContext, kind: str, found_id: str, organization_id: str | None
) -> str:
    """Authorize the route's action on a resource; return the id of the organization.

    `kind` and `found_id` are the last two parts of the resource's CRN.

    Raise `NotFound` if the calling account belongs to no organization or to another one, or the
    calling person is not a member.
    """
    named = organization_id and organization_id.lower()
    if ctx.caller is not None and ctx.caller.account_id is None and named:
        return await authorize_organization(ctx, named, organization_policy)
    account_id = account_of(ctx)
    found = await ctx.database.read(organization_of, account_id)
    if found is None or named not in (None, found):
        raise NotFound("there is no such organization")
    ctx.authorize(str(Crn("billing", ctx.settings.region, account_id, kind, found_id)))
    return found


async def organization_policy(ctx: RequestContext, resource: str) -> Policy | None:
    """Return the policy that follows from a person's role in an organization.

    `resource` is a CRN that has the organization's id in place of an account's. Return None if the
    caller is a program. Raise `NotFound` if the person is not a member of the organization.
    """
    caller = ctx.caller
    if caller is None or caller.account_id is not None:
        return None
    organization_id = Crn.parse(resource).account
    role = await ctx.database.read(role_in, organization_id, caller.id)
    if role is None:
        raise NotFound("there is no such organization")
    actions = Patterns(("billing:*",) if role in _ROLES else ())
    return Policy((PolicyStatement(Effect.ALLOW, actions, principals=frozenset({caller.crn})),))
