"""``/v1/users/me``: the signed-in person and its password."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import get, put
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import Meta

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.iam.passwords import check_new_password, salt_of
from cloudcore.identity.attempts import attempt_of
from cloudcore.identity.names import missing
from cloudcore.identity.routes.organizations import organization_reference
from cloudcore.identity.routes.owned import shown
from cloudcore.identity.routes.users import UserRecord, user_record
from cloudcore.identity.rows.organizations import organization_names
from cloudcore.identity.rows.sessions import find_current_organization
from cloudcore.identity.rows.users import User, find_user
from cloudcore.identity.services.users import change_password
from cloudcore.web.callers import person_of
from cloudcore.web.context import RequestContext
from cloudcore.web.references import ResourceRef
from cloudcore.wire import RequestBody, ResponseBody

_Password = Annotated[str, Meta(min_length=1, max_length=1024)]


class ChangePassword(RequestBody):
    """A new password, and the one it replaces."""

    current_password: _Password
    password: _Password


class MyRecord(UserRecord):
    """The caller."""

    organization: ResourceRef
    """The organization the session works in."""


class Myself(ResponseBody):
    """The caller, wrapped."""

    user: MyRecord


def _find(tx: Connection, user_id: str, sid: str) -> tuple[User, ResourceRef]:
    user = find_user(tx, user_id)
    if user is None:
        raise missing("user")
    current = find_current_organization(tx, sid) or user.organization_id
    return user, organization_reference(current, organization_names(tx, [current])[current])


@get("/v1/users/me", opt={"action": "iam:GetUser"})
async def get_myself(ctx: NamedDependency[RequestContext]) -> Myself:
    """Return the caller and the organization its session works in."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    user, organization = await ctx.database.read(_find, person.id, person.sid or "")
    return Myself(user=shown(MyRecord, user_record(user), organization=organization))


@put(
    "/v1/users/me/password",
    status_code=204,
    opt={"action": "iam:ChangePassword", "statuses": (409, 429)},
)
async def change_own_password(
    data: JSONBody[ChangePassword], ctx: NamedDependency[RequestContext]
) -> None:
    """Change the password; the person's other sessions end.

    After ten wrong passwords within five minutes, the next attempt is 429.
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
    await attempt.forgive(ctx)
    kept = await ctx.passwords.hash(data.password, attempt.asker, salt_of(user.password))
    await ctx.database.write(
        change_password, user.id, user.password, kept, person.sid or "", ctx.clock()
    )


HANDLERS: Final = (get_myself, change_own_password)
