"""``/v1/users/me``: the signed-in person, the person's password, and the roles to assume."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Final

from litestar import get, put
from litestar.params import JSONBody
from msgspec import Meta

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.iam.decision import REQUEST_STEPS, Verdict
from cloudcore.iam.passwords import check_new_password, salt_of
from cloudcore.iam.patterns import StepBudget
from cloudcore.identity.names import missing
from cloudcore.identity.oauth.attempts import attempt_of
from cloudcore.identity.rights.role_trust import ASSIGNED, find_role_caller, verdict_on
from cloudcore.identity.routes.common import Answers
from cloudcore.identity.routes.users import UserRecord
from cloudcore.identity.rows.organizations import JOINED
from cloudcore.identity.rows.roles import AssumableRole, list_assigned
from cloudcore.identity.rows.sessions import find_current_organization
from cloudcore.identity.rows.users import User, find_user
from cloudcore.identity.services.users import change_password
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import answer_of
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import person_of
from cloudcore.web.organization_scope import organization_ref
from cloudcore.web.pagination import NamedPageQuery
from cloudcore.wire import RequestBody, ResponseBody

_Password = Annotated[str, Meta(min_length=1, max_length=1024)]


class ChangePassword(RequestBody):
    """A new password, and the current one."""

    current_password: _Password
    password: _Password


class MyRecord(UserRecord):
    """The caller."""

    organization: ResourceRef
    """The current organization of the session."""


class Myself(ResponseBody):
    """The body of an answer: the caller."""

    user: MyRecord


def _find(tx: Connection, user_id: str, sid: str) -> tuple[User, ResourceRef]:
    user = find_user(tx, user_id)
    if user is None:
        raise missing("user")
    current = find_current_organization(tx, sid) or user.organization_id
    return user, organization_ref(current, JOINED.get(tx, user_id, current).name)


@get("/v1/users/me", opt={"action": "iam:GetUser"})
async def get_myself(ctx: Context) -> Myself:
    """Return the caller, and the current organization of the session."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    user, organization = await ctx.database.read(_find, person.id, person.sid or "")
    return Myself(user=answer_of(MyRecord, user, organization=organization))


@put(
    "/v1/users/me/password",
    status_code=204,
    opt={"action": "iam:ChangePassword", "statuses": (409, 429)},
)
async def change_own_password(data: JSONBody[ChangePassword], ctx: Context) -> None:
    """Change the caller's password; all other sessions of the person end.

    After ten wrong passwords within five minutes, the next attempt gets 429.
    """
    person = person_of(ctx)
    ctx.authorize(person.crn)
    check_new_password(data.password)
    user, _ = await ctx.database.read(_find, person.id, person.sid or "")
    attempt = attempt_of(user)
    if not await attempt.verify(ctx, data.current_password, user.password):
        raise InvalidInput(
            "the current password is wrong", field="current_password", reason="wrong"
        )
    await attempt.credit_back(ctx)
    kept = await ctx.passwords.hash(data.password, attempt.client, salt_of(user.password))
    await ctx.database.write(
        change_password, user.id, user.password, kept, person.sid or "", ctx.clock()
    )


_PORTION: Final = 100
"""Number of roles that are read at once."""


class MyRole(ResponseBody):
    """A role that the caller can assume."""

    id: Uuid
    crn: str
    name: str
    account: ResourceRef
    """The account in which the role acts; the name is the handle."""
    max_session_seconds: int


_ROLE: Final = Answers(MyRole, "role")


@_ROLE.lists("/v1/users/me/roles", "iam:GetUser", NamedPageQuery)
async def list_my_roles(ctx: Context) -> ResponseBody:
    """List the roles that the caller can assume: assigned roles whose trust policies allow it.

    Roles whose trust policies take too long to evaluate are listed too.
    """
    person = person_of(ctx)
    ctx.authorize(person.crn)
    query = ctx.query(NamedPageQuery)
    of = person.id, query.name or ""
    pager = ctx.pager(query, *of)
    (after,) = pager.position or ("",)
    find = partial(find_role_caller, locks=False)
    role_caller = await ctx.database.read(find, person, ctx.source_ip, ctx.clock())
    found: list[AssumableRole] = []
    total, last, work = 0, "", StepBudget(REQUEST_STEPS)
    while portion := await ctx.database.read(list_assigned, *of, last, _PORTION):
        last = portion[-1].id
        for role in portion:
            verdict = verdict_on(role_caller, role, (ASSIGNED,), work)
            if verdict.is_allowed or verdict is Verdict.TOO_COSTLY:
                total += 1
                if role.id > after and len(found) < pager.wanted:
                    found.append(role)
        await asyncio.sleep(0)  # a portion may take milliseconds; let other requests run
    rows, meta = pager.cut(found, total, lambda role: (role.id,))
    return _ROLE.many([_ROLE.show(role) for role in rows], meta)
