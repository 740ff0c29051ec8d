"""``/v1/roles`` and the assignments of roles to persons and to groups of identity providers."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.errors import InvalidInput
from cloudcore.identity.names import person_crn
from cloudcore.identity.oidc.id_tokens import MAX_GROUP_NAME
from cloudcore.identity.rights.lock_out import CHECKED
from cloudcore.identity.routes.common import (
    Answers,
    Description,
    Document,
    Name,
    authorized,
)
from cloudcore.identity.rows.roles import (
    ASSIGNMENTS,
    GROUP_ASSIGNMENTS,
    ROLES,
    Assignment,
    GroupAssignment,
    Role,
)
from cloudcore.identity.services import roles
from cloudcore.identity.services.roles import service_of
from cloudcore.resource_names import Uuid, check_name, parse_uuid
from cloudcore.web.answers import answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply
from cloudcore.web.pagination import NamedPageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of

SessionSeconds = Annotated[int, Meta(ge=3600, le=43_200)]


class CreateRole(RequestBody):
    """A new role."""

    name: Name
    trust_policy: Document
    description: Description = ""
    max_session_seconds: SessionSeconds = 3600


class UpdateRole(RequestBody):
    """Changes of a role; its name stays."""

    trust_policy: Document | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    max_session_seconds: SessionSeconds | UnsetType | None = UNSET


class CreateAssignment(RequestBody):
    """A person to assign a role to."""

    user: Annotated[str, Meta(max_length=300, description="UUID, e-mail address or CRN")]


class RoleRecord(ResponseBody):
    """A role."""

    id: Uuid
    crn: str
    name: str
    description: str
    trust_policy: dict[str, Any]
    max_session_seconds: int
    last_used_at: RFC3339 | None
    """Rounded down to the hour, but not before `created_at`; recorded with a delay of minutes."""
    service: str | None
    """The service of the platform that made the role; only this service changes or deletes it. Null
    for other roles."""
    created_at: RFC3339
    updated_at: RFC3339


class AssignmentRecord(ResponseBody):
    """A role assigned to a person."""

    role: ResourceRef
    user: ResourceRef
    identity_provider: Uuid | None
    """The provider whose group gave the person the role; null for a manual assignment."""
    created_at: RFC3339


def _record(role: Role) -> RoleRecord:
    trust = msgspec.json.decode(role.trust_policy)
    crn, service = ROLES.crn_of(role), service_of(role.name)
    return answer_of(RoleRecord, role, crn=crn, trust_policy=trust, service=service)


_ROLE: Final = Answers(RoleRecord, "role", _record)
_ONE: Final = "/v1/roles/{role_id:str}"


def _assignment(role: Role, found: Assignment) -> AssignmentRecord:
    crn = person_crn(found.personal_organization_id, found.user_id)
    return answer_of(
        AssignmentRecord,
        found,
        role=ROLES.reference(role),
        user=ResourceRef(id=found.user_id, crn=crn, name=found.email),
        identity_provider=found.identity_provider_id,
    )


_ASSIGNMENT: Final = Answers(AssignmentRecord, "assignment", _assignment)
_ASSIGNMENTS: Final = f"{_ONE}/assignments"


@_ROLE.creates("/v1/roles", "iam:CreateRole")
async def create_role(data: JSONBody[CreateRole], ctx: Context) -> Reply[ResponseBody]:
    """Create a role."""
    check_name(data.name)
    now = ctx.clock()
    role = Role(
        ctx.new_id(),
        account_of(ctx),
        data.name,
        data.description,
        "",
        data.max_session_seconds,
        now,
        now,
    )
    ctx.authorize(ROLES.crn_of(role))
    return await ctx.commit(
        roles.create_role,
        role,
        data.trust_policy,
        wrap=_ROLE.one,
        location=lambda made: f"/v1/roles/{made.id}",
    )


@_ROLE.lists("/v1/roles", "iam:ListRoles", NamedPageQuery)
async def list_account_roles(ctx: Context) -> ResponseBody:
    """List roles by name."""
    return await _ROLE.page_of_account(ctx, ROLES)


@_ROLE.gets(_ONE, "iam:GetRole")
async def get_role(role_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a role."""
    return _ROLE.one(await authorized(ctx, ROLES, role_id))


@_ROLE.updates(_ONE, "iam:UpdateRole", **CHECKED)
async def update_role(
    role_id: FromPath[str], data: JSONBody[UpdateRole], ctx: Context
) -> Reply[ResponseBody]:
    """Change a role; a new trust policy ends its sessions, unless it only adds allow statements."""
    role = await authorized(ctx, ROLES, role_id)
    changes = changes_of(data, CreateRole)
    return await ctx.commit(
        roles.update_role, role.account_id, role.id, changes, ctx.clock(), wrap=_ROLE.one
    )


@deletes(_ONE, "iam:DeleteRole", **CHECKED)
async def delete_role(role_id: FromPath[str], ctx: Context) -> None:
    """Delete a role; its sessions end at once."""
    role = await authorized(ctx, ROLES, role_id)
    await ctx.database.write(roles.delete_role, role.account_id, role.id)


@_ASSIGNMENT.creates(_ASSIGNMENTS, "iam:AssignRole")
async def create_assignment(
    role_id: FromPath[str], data: JSONBody[CreateAssignment], ctx: Context
) -> Reply[ResponseBody]:
    """Assign a role to a member of the organization; the trust policy is not changed."""
    role = await authorized(ctx, ROLES, role_id)
    return await ctx.commit(
        roles.assign_role,
        role.account_id,
        role.id,
        data.user,
        ctx.clock(),
        wrap=partial(_ASSIGNMENT.one, role),
        location=lambda made: f"/v1/roles/{role.id}/assignments/{made.user_id}",
    )


@_ASSIGNMENT.lists(_ASSIGNMENTS, "iam:ListRoleAssignments")
async def list_role_assignments(role_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the persons that a role is assigned to."""
    role = await authorized(ctx, ROLES, role_id)
    return await _ASSIGNMENT.page(ctx, ASSIGNMENTS, role.id, role)


@deletes(_ASSIGNMENTS + "/{user_id:str}", "iam:UnassignRole", **CHECKED)
async def delete_assignment(role_id: FromPath[str], user_id: FromPath[str], ctx: Context) -> None:
    """Unassign a role from a person; the person's sessions of the role end."""
    role = await authorized(ctx, ROLES, role_id)
    await ctx.database.write(roles.unassign_role, role.account_id, role.id, user_id, ctx.clock())


_GROUPS: Final = f"{_ONE}/group-assignments"

Group = Annotated[str, Meta(min_length=1, max_length=MAX_GROUP_NAME)]


class CreateGroupAssignment(RequestBody):
    """The group of an identity provider to assign a role to."""

    identity_provider: Uuid
    """A provider of the account's organization."""
    group: Group
    """The name of the group in the provider's groups claim."""


class GroupAssignmentRecord(ResponseBody):
    """A role assigned to a group, whose persons have the role from their next sign-in on."""

    id: Uuid
    role: ResourceRef
    identity_provider: Uuid
    group: str
    created_at: RFC3339


def _group_assignment(role: Role, found: GroupAssignment) -> GroupAssignmentRecord:
    return answer_of(
        GroupAssignmentRecord,
        found,
        role=ROLES.reference(role),
        identity_provider=found.provider_id,
        group=found.group_name,
    )


_GROUP_ASSIGNMENT: Final = Answers(GroupAssignmentRecord, "group_assignment", _group_assignment)


@_GROUP_ASSIGNMENT.creates(_GROUPS, "iam:AssignRole", statuses=(404, 409))
async def create_group_assignment(
    role_id: FromPath[str], data: JSONBody[CreateGroupAssignment], ctx: Context
) -> Reply[ResponseBody]:
    """Assign a role to a group of an identity provider of the organization.

    At each sign-in, persons in the group get the role, and persons who left the group lose it.
    Manual assignments stay. The role's trust policy must allow these persons too.
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
        roles.assign_to_group,
        role.account_id,
        made,
        wrap=partial(_GROUP_ASSIGNMENT.one, role),
        location=lambda kept: f"/v1/roles/{role.id}/group-assignments/{kept.id}",
    )


@_GROUP_ASSIGNMENT.lists(_GROUPS, "iam:ListRoleAssignments")
async def list_role_group_assignments(role_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the groups that a role is assigned to, oldest first."""
    role = await authorized(ctx, ROLES, role_id)
    return await _GROUP_ASSIGNMENT.page(ctx, GROUP_ASSIGNMENTS, role.id, role)


@deletes(_GROUPS + "/{group_assignment_id:str}", "iam:UnassignRole", **CHECKED)
async def delete_group_assignment(
    role_id: FromPath[str], group_assignment_id: FromPath[str], ctx: Context
) -> None:
    """Unassign a role from a group.

    If no other group of the provider has the role, all persons who have it through the provider
    lose the role and their sessions of it at once. Otherwise, persons in this group lose it at
    their next sign-in, unless they are in one of the other groups.
    """
    role = await authorized(ctx, ROLES, role_id)
    await ctx.database.write(
        roles.unassign_from_group,
        role.account_id,
        role.id,
        group_assignment_id,
        ctx.clock(),
    )
