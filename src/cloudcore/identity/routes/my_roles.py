"""``/v1/users/me/roles``: the roles that a person can assume, and their accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import get
from litestar.di import NamedDependency

from cloudcore.identity.names import iam_crn
from cloudcore.identity.rows.assumable_roles import AssumableRole, count_assigned, list_assigned
from cloudcore.uuids import Uuid
from cloudcore.web.callers import person_of
from cloudcore.web.context import RequestContext
from cloudcore.web.listing import read_page
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.web.references import ResourceRef
from cloudcore.wire import ResponseBody


class MyRole(ResponseBody):
    """A role that is assigned to the caller."""

    id: Uuid
    crn: str
    name: str
    account: ResourceRef
    """The account in which the role acts; the name is the handle."""
    max_session_seconds: int


class ManyMyRoles(ResponseBody):
    """A page of roles."""

    roles: Sequence[MyRole]
    meta: PageMeta


def _record(role: AssumableRole) -> MyRole:
    return MyRole(
        id=role.id,
        crn=iam_crn(role.account_id, "role", role.name),
        name=role.name,
        account=ResourceRef(
            id=role.account_id,
            crn=iam_crn(role.account_id, "account", role.handle),
            name=role.handle,
        ),
        max_session_seconds=role.max_session_seconds,
    )


@get("/v1/users/me/roles", opt={"action": "iam:GetUser", "query": PageQuery})
async def list_my_roles(ctx: NamedDependency[RequestContext]) -> ManyMyRoles:
    """List the roles that are assigned to the caller."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        list_assigned,
        count_assigned,
        person.id,
        key=lambda role: role.id,
    )
    return ManyMyRoles(roles=[_record(role) for role in found], meta=meta)


HANDLERS: Final = (list_my_roles,)
