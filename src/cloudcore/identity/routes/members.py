"""``/v1/organizations/{id}/members``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from litestar import delete, get, patch
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from cloudcore.identity.names import person_crn
from cloudcore.identity.routes.fields import PeopleQuery
from cloudcore.identity.routes.organizations import (
    MemberRole,
    authorized,
    member_role,
)
from cloudcore.identity.rows.organizations import Member, count_members, list_members
from cloudcore.identity.services import organizations
from cloudcore.web.callers import person_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageMeta, read_page
from cloudcore.web.references import ResourceRef
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

_PATH: Final = "/v1/organizations/{organization_id:str}/members"


class UpdateMember(RequestBody):
    """Changes of a member's role."""

    role: MemberRole | UnsetType = UNSET


class MemberRecord(ResponseBody):
    """A person's role in an organization."""

    user: ResourceRef
    role: MemberRole
    status: Literal["active"]
    created_at: RFC3339


class OneMember(ResponseBody):
    """A member, wrapped."""

    member: MemberRecord


class ManyMembers(ResponseBody):
    """A page of members."""

    members: Sequence[MemberRecord]
    meta: PageMeta


def _record(member: Member) -> MemberRecord:
    user_id = member.membership.user_id
    crn = person_crn(member.personal_organization_id, user_id)
    return MemberRecord(
        user=ResourceRef(id=user_id, crn=crn, name=member.email),
        role=member_role(member.membership.role),
        status="active",
        created_at=rfc3339(member.membership.created_at),
    )


def _one(member: Member) -> OneMember:
    return OneMember(member=_record(member))


@get(_PATH, opt={"action": "iam:ListMembers", "query": PeopleQuery})
async def list_organization_members(
    organization_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> ManyMembers:
    """List the members."""
    await authorized(ctx, organization_id)
    query = ctx.query(PeopleQuery)
    found, meta = await read_page(
        ctx,
        query,
        list_members,
        count_members,
        organization_id,
        query.address,
        key=lambda member: member.membership.user_id,
    )
    return ManyMembers(members=[_record(member) for member in found], meta=meta)


@patch(_PATH + "/{user_id:str}", opt={"action": "iam:UpdateMember", "statuses": (409,)})
async def update_member(
    organization_id: FromPath[str],
    user_id: FromPath[str],
    data: JSONBody[UpdateMember],
    ctx: NamedDependency[RequestContext],
) -> Reply[OneMember]:
    """Change a member's role; the last owner remains owner."""
    await authorized(ctx, organization_id)
    role = None if data.role is UNSET else data.role
    return await ctx.commit(
        organizations.set_member_role, organization_id, user_id, role, wrap=_one
    )


@delete(_PATH + "/{user_id:str}", opt={"action": "iam:RemoveMember", "statuses": (409,)})
async def remove_member(
    organization_id: FromPath[str], user_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> None:
    """Remove a member, or leave; the roles in the organization's accounts go too."""
    person = person_of(ctx)
    if user_id == person.id:
        ctx.authorize(person.crn, action="iam:LeaveOrganization")
    else:
        await authorized(ctx, organization_id)
    await ctx.database.write(organizations.remove_member, organization_id, user_id, ctx.clock())


HANDLERS: Final = (list_organization_members, update_member, remove_member)
