"""``/v1/roles`` and the assignments of roles to persons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.identity.lock_out import CHECKED
from cloudcore.identity.names import person_crn
from cloudcore.identity.routes.fields import Description, Document, Name
from cloudcore.identity.routes.owned import authorized, list_of_account, reference, shown
from cloudcore.identity.rows.roles import (
    ROLES,
    Assigned,
    Role,
    count_assignments,
    list_assignments,
)
from cloudcore.identity.services import roles
from cloudcore.resource_names import check_name
from cloudcore.uuids import Uuid
from cloudcore.web.callers import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import NamedPageQuery, PageMeta, PageQuery, read_page
from cloudcore.web.references import ResourceRef
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of, rfc3339

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
    """A person who shall be able to assume a role."""

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
    """Rounded down to the hour, but not before `created_at`; minutes late."""
    created_at: RFC3339
    updated_at: RFC3339


class AssignmentRecord(ResponseBody):
    """A role assigned to a person."""

    role: ResourceRef
    user: ResourceRef
    identity_provider: Uuid | None
    """The provider one of whose groups has the role; null if it was assigned by hand."""
    created_at: RFC3339


class OneRole(ResponseBody):
    """A role, wrapped."""

    role: RoleRecord


class ManyRoles(ResponseBody):
    """A page of roles."""

    roles: Sequence[RoleRecord]
    meta: PageMeta


class OneAssignment(ResponseBody):
    """An assignment, wrapped."""

    assignment: AssignmentRecord


class ManyAssignments(ResponseBody):
    """A page of assignments."""

    assignments: Sequence[AssignmentRecord]
    meta: PageMeta


def _record(role: Role) -> RoleRecord:
    trust = msgspec.json.decode(role.trust_policy)
    return shown(RoleRecord, role, crn=ROLES.crn_of(role), trust_policy=trust)


def _one(role: Role) -> OneRole:
    return OneRole(role=_record(role))


def _assignment(role: Role, assigned: Assigned) -> AssignmentRecord:
    user_id = assigned.assignment.user_id
    return AssignmentRecord(
        role=reference(ROLES, role),
        user=ResourceRef(
            id=user_id,
            crn=person_crn(assigned.personal_organization_id, user_id),
            name=assigned.email,
        ),
        identity_provider=assigned.assignment.identity_provider_id,
        created_at=rfc3339(assigned.assignment.created_at),
    )


@post("/v1/roles", status_code=201, opt={"action": "iam:CreateRole", "idempotent": True})
async def create_role(
    data: JSONBody[CreateRole], ctx: NamedDependency[RequestContext]
) -> Reply[OneRole]:
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
        wrap=_one,
        location=lambda made: f"/v1/roles/{made.id}",
    )


@get("/v1/roles", opt={"action": "iam:ListRoles", "query": NamedPageQuery})
async def list_account_roles(ctx: NamedDependency[RequestContext]) -> ManyRoles:
    """List roles by name."""
    found, meta = await list_of_account(ctx, ROLES)
    return ManyRoles(roles=[_record(role) for role in found], meta=meta)


@get("/v1/roles/{role_id:str}", opt={"action": "iam:GetRole"})
async def get_role(role_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> OneRole:
    """Return a role."""
    return _one(await authorized(ctx, ROLES, role_id))


@patch("/v1/roles/{role_id:str}", opt={"action": "iam:UpdateRole", **CHECKED})
async def update_role(
    role_id: FromPath[str], data: JSONBody[UpdateRole], ctx: NamedDependency[RequestContext]
) -> Reply[OneRole]:
    """Change a role; a new trust policy ends its sessions, unless it only adds allows."""
    role = await authorized(ctx, ROLES, role_id)
    changes = changes_of(data, CreateRole)
    return await ctx.commit(
        roles.update_role, role.account_id, role.id, changes, ctx.clock(), wrap=_one
    )


@delete("/v1/roles/{role_id:str}", opt={"action": "iam:DeleteRole", **CHECKED})
async def delete_role(role_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> None:
    """Delete a role; its sessions end at once."""
    role = await authorized(ctx, ROLES, role_id)
    await ctx.database.write(roles.delete_role, role.account_id, role.id)


@post(
    "/v1/roles/{role_id:str}/assignments",
    status_code=201,
    opt={"action": "iam:AssignRole", "idempotent": True},
)
async def create_assignment(
    role_id: FromPath[str], data: JSONBody[CreateAssignment], ctx: NamedDependency[RequestContext]
) -> Reply[OneAssignment]:
    """Assign a role to a member of the organization; the trust policy stays as it is."""
    role = await authorized(ctx, ROLES, role_id)
    return await ctx.commit(
        roles.assign_role,
        role.account_id,
        role.id,
        data.user,
        ctx.clock(),
        wrap=lambda assigned: OneAssignment(assignment=_assignment(role, assigned)),
        location=lambda made: f"/v1/roles/{role.id}/assignments/{made.assignment.user_id}",
    )


@get(
    "/v1/roles/{role_id:str}/assignments",
    opt={"action": "iam:ListRoleAssignments", "query": PageQuery},
)
async def list_role_assignments(
    role_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> ManyAssignments:
    """List the persons a role is assigned to."""
    role = await authorized(ctx, ROLES, role_id)
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        list_assignments,
        count_assignments,
        role.id,
        key=lambda assigned: assigned.assignment.user_id,
    )
    return ManyAssignments(assignments=[_assignment(role, each) for each in found], meta=meta)


@delete(
    "/v1/roles/{role_id:str}/assignments/{user_id:str}",
    opt={"action": "iam:UnassignRole", **CHECKED},
)
async def delete_assignment(
    role_id: FromPath[str], user_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> None:
    """Unassign a role; sessions in which the person has assumed it end."""
    role = await authorized(ctx, ROLES, role_id)
    await ctx.database.write(roles.unassign_role, role.account_id, role.id, user_id, ctx.clock())


HANDLERS: Final = (
    create_role,
    list_account_roles,
    get_role,
    update_role,
    delete_role,
    create_assignment,
    list_role_assignments,
    delete_assignment,
)
