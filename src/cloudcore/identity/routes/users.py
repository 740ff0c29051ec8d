"""``/v1/users``: the persons of an organization.

People belong to organizations, not to accounts, so only owners of the organization can add, suspend
or delete them. Programs and roles of the organization's accounts can list them, to assign roles.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.errors import AccessDenied, Conflict
from cloudcore.iam.passwords import PasswordClient, salt_of
from cloudcore.identity.names import email_address, iam_crn, missing
from cloudcore.identity.rights.permissions import membership
from cloudcore.identity.routes.common import Answers, Email, PeopleQuery, Status
from cloudcore.identity.routes.organizations import home_of, membership_policy
from cloudcore.identity.rows.organizations import Joined, find_shared_organization
from cloudcore.identity.rows.users import PEOPLE, User
from cloudcore.identity.services import users
from cloudcore.identity.services.members import organization_of
from cloudcore.resource_names import Uuid, lower_ids
from cloudcore.web.answers import deletes
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import person_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RFC3339, RequestBody, ResponseBody


class CreateUser(RequestBody):
    """A new person."""

    email: Email
    organization: (
        Annotated[str, Meta(max_length=36, description="Id; the one the session works in, if none")]
        | None
    ) = None


class UpdateUser(RequestBody):
    """Changes of a person."""

    status: Status | UnsetType = UNSET


class UserRecord(ResponseBody):
    """A person."""

    id: Uuid
    crn: str
    email: str
    status: Status
    must_change_password: bool
    created_at: RFC3339
    updated_at: RFC3339


class NewUserRecord(UserRecord):
    """A person with the password for the next sign-in, which is shown only once."""

    one_time_password: str


_USER: Final = Answers(UserRecord, "user", noun="person")
_NEW: Final = Answers(NewUserRecord, "user", noun="new person")
_ONE: Final = "/v1/users/{user_id:str}"


def _authorize(ctx: RequestContext, joined: Joined, user_id: str) -> None:
    """Authorize the route's action on a user by the caller's role in an organization."""
    person = person_of(ctx)
    ctx.authorize(
        iam_crn(joined.id, "user", user_id),
        resource_policy=membership(joined.role, person.crn),
    )


async def _authorized_organization(ctx: RequestContext, user_id: str) -> Joined:
    """Return an organization of the caller and the user, preferably owned by the caller.

    Raise `AccessDenied` if the caller is not a person, or the caller's role in the organization
    does not allow the action; `NotFound` if caller and user share no organization.
    """
    joined = await ctx.database.read(find_shared_organization, person_of(ctx).id, user_id)
    if joined is None:
        raise missing("user")
    _authorize(ctx, joined, user_id)
    return joined


async def _listed_organization(ctx: RequestContext) -> str:
    """Return the id of the organization whose users the caller may list, or raise `AccessDenied`.

    It is the session's current organization or, for a caller in an account, the account's owner.
    """
    assert ctx.caller is not None
    if ctx.caller.account_id is None:
        joined = await ctx.database.read(home_of, ctx.caller, None)
        _authorize(ctx, joined, "*")
        return joined.id
    ctx.authorize(iam_crn(ctx.caller.account_id, "user", "*"))
    return await ctx.database.read(organization_of, ctx.caller.account_id)


@_NEW.creates("/v1/users", "iam:CreateUser", resource_policy=membership_policy, statuses=(404,))
async def create_user(data: JSONBody[CreateUser], ctx: Context) -> Reply[ResponseBody]:
    """Create a person as a member of the organization, with no role yet; for its owners.

    The e-mail address must be new in the organization. The answer is the same whether or not people
    of other organizations have the address.
    """
    person = person_of(ctx)
    named = data.organization and lower_ids(data.organization)
    joined = await ctx.database.read(home_of, person, named)
    if joined.is_personal:
        raise AccessDenied("a personal organization has one member; name another organization")
    _authorize(ctx, joined, "*")
    email = email_address(data.email)
    password = users.new_password()
    salt = await ctx.database.read(users.find_salt, ctx.keyring, email)
    kept = await ctx.passwords.hash(password, PasswordClient(person.id, is_known=True), salt)
    now = ctx.clock()
    return await ctx.commit(
        users.create_user,
        joined.id,
        User(ctx.new_id(), email, kept, ctx.new_id(), now, now),
        wrap=partial(_NEW.one, one_time_password=password),
        location=lambda made: f"/v1/users/{made.id}",
    )


@_USER.lists("/v1/users", "iam:ListUsers", PeopleQuery)
async def list_users(ctx: Context) -> ResponseBody:
    """List the persons of the caller's organization: the account's, or the session's."""
    return await _USER.page(ctx, PEOPLE, await _listed_organization(ctx), query=PeopleQuery)


@_USER.gets(_ONE, "iam:GetUser")
async def get_user(user_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a person of the account's organization, or of an organization of the caller."""
    assert ctx.caller is not None
    if ctx.caller.account_id is None:
        joined = await _authorized_organization(ctx, user_id)
        return _USER.one(await ctx.database.read(PEOPLE.get, joined.id, user_id))
    organization_id = await ctx.database.read(organization_of, ctx.caller.account_id)
    user = await ctx.database.read(PEOPLE.get, organization_id, user_id)
    ctx.authorize(iam_crn(ctx.caller.account_id, "user", user_id))
    return _USER.one(user)


@_USER.updates(_ONE, "iam:UpdateUser", statuses=(409,))
async def update_user(
    user_id: FromPath[str], data: JSONBody[UpdateUser], ctx: Context
) -> Reply[ResponseBody]:
    """Suspend or reactivate a person who is in no other organization; for owners."""
    joined = await _authorized_organization(ctx, user_id)
    status = None if data.status is UNSET else data.status
    return await ctx.commit(
        users.set_user_status, joined.id, user_id, status, ctx.clock(), wrap=_USER.one
    )


@_NEW.changes(
    f"{_ONE}/reset-password",
    "iam:ResetPassword",
    resource_policy=membership_policy,
    statuses=(409,),
)
async def reset_user_password(user_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Give a person a new one-time password; all sessions of the person end.

    For owners; the person must be in no other organization. The password is only in this answer; at
    the next sign-in, the person must choose another.
    """
    person = person_of(ctx)
    joined = await _authorized_organization(ctx, user_id)
    if user_id == person.id:
        raise Conflict("change your own password with PUT /v1/users/me/password")
    user = await ctx.database.read(PEOPLE.get, joined.id, user_id)
    password = users.new_password()
    client = PasswordClient(person.id, is_known=True)
    kept = await ctx.passwords.hash(password, client, salt_of(user.password))
    return await ctx.commit(
        users.reset_password,
        joined.id,
        user_id,
        kept,
        ctx.clock(),
        wrap=partial(_NEW.one, one_time_password=password),
    )


@deletes(_ONE, "iam:DeleteUser", statuses=(409,))
async def delete_user(user_id: FromPath[str], ctx: Context) -> None:
    """Delete a person who is in no other organization and owns no account; for owners."""
    joined = await _authorized_organization(ctx, user_id)
    await ctx.database.write(users.delete_user, joined.id, user_id, ctx.clock())
