"""``/v1/organizations``: persons create, list, show, change, delete and switch organizations."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from cloudcore.db.base import Connection
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import Principal
from cloudcore.identity.rights.permissions import membership
from cloudcore.identity.routes.common import Answers, Title
from cloudcore.identity.rows.organizations import JOINED, Joined, Organization
from cloudcore.identity.rows.sessions import find_current_organization
from cloudcore.identity.services import organizations
from cloudcore.identity.services.organizations import check_may_create_organizations
from cloudcore.resource_names import Crn, Uuid
from cloudcore.web.answers import answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import person_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import NamedPageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

MemberRole = Literal["owner", "member", "billing"]


class CreateOrganization(RequestBody):
    """A new organization."""

    name: Title


class UpdateOrganization(RequestBody):
    """Changes of an organization."""

    name: Title | UnsetType = UNSET


class OrganizationRecord(ResponseBody):
    """An organization, and the caller's role in it."""

    id: Uuid
    crn: str
    name: str
    is_personal: bool
    role: MemberRole
    status: Literal["active"]
    created_at: RFC3339
    updated_at: RFC3339


ORGANIZATION: Final = Answers(
    OrganizationRecord, "organization", partial(answer_of, OrganizationRecord, status="active")
)
ORGANIZATION_PATH: Final = "/v1/organizations/{organization_id:str}"


async def authorized(ctx: RequestContext, organization_id: str) -> Joined:
    """Authorize the route's action in an organization; return it with the caller's role.

    Raise `NotFound` if the caller is not a member, `AccessDenied` if the role does not allow the
    action.
    """
    person = person_of(ctx)
    joined = await ctx.database.read(JOINED.get, person.id, organization_id)
    ctx.authorize(joined.crn, resource_policy=membership(joined.role, person.crn))
    return joined


def home_of(tx: Connection, person: Principal, named: str | None) -> Joined:
    """Return the organization with the id `named`, or else the session's current one.

    Raise `NotFound` if the person is not a member.
    """
    current = named or find_current_organization(tx, person.sid or "") or person.organization_id
    return JOINED.get(tx, person.id, current or "")


async def membership_policy(ctx: RequestContext, resource: str) -> Policy | None:
    """Return the caller's `membership` policy in the organization that a CRN belongs to.

    Return None if the caller is not a person, or is a person in a role.

    Raise `NotFound` if the caller is not a member of the organization.
    """
    caller = ctx.caller
    if caller is None or caller.account_id is not None:
        return None
    organization_id = Crn.parse(resource).account
    joined = await ctx.database.read(JOINED.get, caller.id, organization_id)
    return membership(joined.role, caller.crn)


@ORGANIZATION.creates("/v1/organizations", "iam:CreateOrganization")
async def create_organization(
    data: JSONBody[CreateOrganization], ctx: Context
) -> Reply[ResponseBody]:
    """Create an organization owned by the caller, if the operator allows it."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    await ctx.database.read(partial(check_may_create_organizations, ctx), person.id)
    now = ctx.clock()
    return await ctx.commit(
        organizations.create_organization,
        Organization(ctx.new_id(), data.name, now, now),
        person.id,
        wrap=ORGANIZATION.one,
        location=lambda joined: f"/v1/organizations/{joined.id}",
    )


@ORGANIZATION.lists("/v1/organizations", "iam:ListOrganizations", NamedPageQuery)
async def list_organizations(ctx: Context) -> ResponseBody:
    """List the organizations that the caller belongs to, oldest first."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    return await ORGANIZATION.page(ctx, JOINED, person.id, query=NamedPageQuery)


@ORGANIZATION.gets(ORGANIZATION_PATH, "iam:GetOrganization")
async def get_organization(organization_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return an organization that the caller belongs to."""
    return ORGANIZATION.one(await authorized(ctx, organization_id))


@ORGANIZATION.updates(ORGANIZATION_PATH, "iam:UpdateOrganization")
async def update_organization(
    organization_id: FromPath[str], data: JSONBody[UpdateOrganization], ctx: Context
) -> Reply[ResponseBody]:
    """Change an organization."""
    joined = await authorized(ctx, organization_id)
    return await ctx.commit(
        organizations.rename_organization,
        organization_id,
        joined.user_id,
        None if data.name is UNSET else data.name,
        ctx.clock(),
        wrap=ORGANIZATION.one,
    )


@deletes(ORGANIZATION_PATH, "iam:DeleteOrganization", statuses=(409,))
async def delete_organization(organization_id: FromPath[str], ctx: Context) -> None:
    """Delete an organization that owns no account."""
    joined = await authorized(ctx, organization_id)
    await ctx.database.write(organizations.delete_organization, organization_id, joined.user_id)


@ORGANIZATION.changes(f"{ORGANIZATION_PATH}/switch", "iam:SwitchOrganization")
async def switch_organization(organization_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Set the session's current organization, which applies to requests that name none."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    return await ctx.commit(
        organizations.switch_to, organization_id, person.id, person.sid or "", wrap=ORGANIZATION.one
    )
