"""``/v1/users/me/roles``: the roles that a person can assume, and their accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from litestar import get
from litestar.di import NamedDependency

from cloudcore.iam.decision import DECISION_STEPS, Verdict
from cloudcore.iam.patterns import Work
from cloudcore.identity.names import iam_crn
from cloudcore.identity.role_trust import ASSIGNED, Asker, find_asker, verdict_on
from cloudcore.identity.routes.owned import shown
from cloudcore.identity.rows.assumable_roles import AssumableRole, list_assigned
from cloudcore.uuids import Uuid
from cloudcore.web.callers import person_of
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import NamedPageQuery, PageMeta
from cloudcore.web.references import ResourceRef
from cloudcore.wire import ResponseBody

_PORTION: Final = 100
"""Roles that are read at once."""
_STEPS: Final = 20 * DECISION_STEPS
"""Steps of all decisions for one request: some 100 ms."""


class MyRole(ResponseBody):
    """A role that the caller can assume."""

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


def account_of_role(role: AssumableRole) -> ResourceRef:
    """Return a reference to the account in which a role acts."""
    crn = iam_crn(role.account_id, "account", role.handle)
    return ResourceRef(id=role.account_id, crn=crn, name=role.handle)


def _record(role: AssumableRole) -> MyRole:
    crn = iam_crn(role.account_id, "role", role.name)
    return shown(MyRole, role, crn=crn, account=account_of_role(role))


@get("/v1/users/me/roles", opt={"action": "iam:GetUser", "query": NamedPageQuery})
async def list_my_roles(ctx: NamedDependency[RequestContext]) -> ManyMyRoles:
    """List the roles that the caller can assume: assigned to it, by trust policies that let it in.

    One whose trust policy takes too long to evaluate is listed, too.
    """
    person = person_of(ctx)
    ctx.authorize(person.crn)
    query = ctx.query(NamedPageQuery)
    of = person.id, query.name or ""
    pager = ctx.pager(query, *of)
    (after,) = pager.position or ("",)
    find = partial(find_asker, locks=False)
    asker = await ctx.database.read(find, person, ctx.source_ip, ctx.clock())
    found: list[AssumableRole] = []
    total, last, work = 0, "", Work(_STEPS)
    while portion := await ctx.database.read(list_assigned, *of, last, _PORTION):
        last = portion[-1].id
        for role in portion:
            if _may_let_in(asker, role, work):
                total += 1
                if role.id > after and len(found) < pager.wanted:
                    found.append(role)
        await asyncio.sleep(0)  # a portion may take milliseconds; let other requests run
    rows, meta = pager.cut(found, total, lambda role: (role.id,))
    return ManyMyRoles(roles=[_record(role) for role in rows], meta=meta)


def _may_let_in(asker: Asker, role: AssumableRole, work: Work) -> bool:
    verdict = verdict_on(asker, role, (ASSIGNED,), work)
    return verdict.is_allowed or verdict is Verdict.TOO_COSTLY


HANDLERS: Final = (list_my_roles,)
