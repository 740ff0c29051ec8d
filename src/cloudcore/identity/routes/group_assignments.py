"""``/v1/roles/{id}/group-assignments``: roles that groups of an identity provider have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from cloudcore.errors import InvalidInput
from cloudcore.identity.lock_out import CHECKED
from cloudcore.identity.oidc.profiles import MAX_GROUP_NAME
from cloudcore.identity.routes.owned import authorized, reference
from cloudcore.identity.rows.group_assignments import (
    GROUP_ASSIGNMENTS,
    GroupAssignment,
)
from cloudcore.identity.rows.roles import ROLES, Role
from cloudcore.identity.services import group_assignments
from cloudcore.uuids import Uuid, parse_uuid
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery, read_page
from cloudcore.web.references import ResourceRef
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

_PATH: Final = "/v1/roles/{role_id:str}/group-assignments"

Group = Annotated[str, Meta(min_length=1, max_length=MAX_GROUP_NAME)]


class CreateGroupAssignment(RequestBody):
    """A role for a group."""

    identity_provider: Uuid
    """A provider of the account's organization."""
    group: Group
    """The group as the provider names it in its claim."""


class GroupAssignmentRecord(ResponseBody):
    """A role that the persons of a group have from their next sign-in on."""

    id: Uuid
    role: ResourceRef
    identity_provider: Uuid
    group: str
    created_at: RFC3339


class OneGroupAssignment(ResponseBody):
    """A group assignment, wrapped."""

    group_assignment: GroupAssignmentRecord


class ManyGroupAssignments(ResponseBody):
    """A page of group assignments."""

    group_assignments: Sequence[GroupAssignmentRecord]
    meta: PageMeta


def _record(role: Role, found: GroupAssignment) -> GroupAssignmentRecord:
    return GroupAssignmentRecord(
        id=found.id,
        role=reference(ROLES, role),
        identity_provider=found.provider_id,
        group=found.group_name,
        created_at=rfc3339(found.created_at),
    )


@post(
    _PATH,
    status_code=201,
    opt={"action": "iam:AssignRole", "idempotent": True, "statuses": (404, 409)},
)
async def create_group_assignment(
    role_id: FromPath[str],
    data: JSONBody[CreateGroupAssignment],
    ctx: NamedDependency[RequestContext],
) -> Reply[OneGroupAssignment]:
    """Assign a role to a group of an identity provider of the organization.

    At each sign-in, persons of the group get the role, and persons who left the group lose it. A
    role that was assigned by hand stays. The role's trust policy applies to them as to others.
    """
    role = await authorized(ctx, ROLES, role_id)
    provider_id = parse_uuid(data.identity_provider)
    if provider_id is None:
        field = "identity_provider"
        raise InvalidInput(f"{field} is a UUID", field=field, reason="malformed")
    if not data.group.isprintable():
        words = "group has control characters"
        raise InvalidInput(words, field="group", reason="malformed")
    made = GroupAssignment(ctx.new_id(), role.id, provider_id, data.group, ctx.clock())
    return await ctx.commit(
        group_assignments.assign_to_group,
        role.account_id,
        made,
        wrap=lambda kept: OneGroupAssignment(group_assignment=_record(role, kept)),
        location=lambda kept: f"/v1/roles/{role.id}/group-assignments/{kept.id}",
    )


@get(_PATH, opt={"action": "iam:ListRoleAssignments", "query": PageQuery})
async def list_role_group_assignments(
    role_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> ManyGroupAssignments:
    """List the groups a role is assigned to, oldest first."""
    role = await authorized(ctx, ROLES, role_id)
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        GROUP_ASSIGNMENTS.list,
        GROUP_ASSIGNMENTS.count,
        role.id,
        "",
        key=lambda each: each.id,
    )
    return ManyGroupAssignments(
        group_assignments=[_record(role, each) for each in found], meta=meta
    )


@delete(_PATH + "/{group_assignment_id:str}", opt={"action": "iam:UnassignRole", **CHECKED})
async def delete_group_assignment(
    role_id: FromPath[str],
    group_assignment_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
) -> None:
    """Unassign a role from a group.

    If no other group of the provider has the role, its persons lose it and their sessions of it
    at once; else those of this group lose it at their next sign-in.
    """
    role = await authorized(ctx, ROLES, role_id)
    await ctx.database.write(
        group_assignments.unassign_from_group,
        role.account_id,
        role.id,
        group_assignment_id,
        ctx.clock(),
    )


HANDLERS: Final = (create_group_assignment, list_role_group_assignments, delete_group_assignment)
