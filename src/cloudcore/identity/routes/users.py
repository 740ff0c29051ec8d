"""``/v1/users``: the persons of an account's organization."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from cloudcore.context import Context, Reply
from cloudcore.identity.names import email_address, iam_crn
from cloudcore.identity.routes.callers import account_of, person_crn, read_page
from cloudcore.identity.routes.fields import Email, Status
from cloudcore.identity.rows.users import User, count_active_members, list_active_members
from cloudcore.identity.services import users
from cloudcore.identity.services.members import organization_of
from cloudcore.pagination import Page, PageMeta
from cloudcore.uuids import Uuid
from cloudcore.wire import RFC3339, Answer, Request, rfc3339


class CreateUser(Request):
    """A new person."""

    email: Email


class UpdateUser(Request):
    """Changes of a person."""

    status: Status | UnsetType = UNSET


class UserRecord(Answer):
    """A person."""

    id: Uuid
    crn: str
    email: str
    status: Status
    must_change_password: bool
    created_at: RFC3339
    updated_at: RFC3339


class NewUserRecord(UserRecord):
    """A person with the password of the first sign-in, which is shown this once."""

    one_time_password: str


class OneUser(Answer):
    """A person, wrapped."""

    user: UserRecord


class OneNewUser(Answer):
    """A new person, wrapped."""

    user: NewUserRecord


class ManyUsers(Answer):
    """A page of persons."""

    users: Sequence[UserRecord]
    meta: PageMeta


def user_record(user: User) -> UserRecord:
    """Return a person as answers show it."""
    return UserRecord(
        id=user.id,
        crn=person_crn(user.organization_id, user.id),
        email=user.email,
        status="active" if user.status == "active" else "suspended",
        must_change_password=user.must_change_password,
        created_at=rfc3339(user.created_at),
        updated_at=rfc3339(user.updated_at),
    )


def _one(user: User) -> OneUser:
    return OneUser(user=user_record(user))


def _new(password: str, user: User) -> OneNewUser:
    record = user_record(user)
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return OneNewUser(user=NewUserRecord(**fields, one_time_password=password))


async def _authorized(ctx: Context, user_id: str) -> User:
    account_id = account_of(ctx)
    user = await ctx.database.read(users.get_user, account_id, user_id)
    ctx.authorize(iam_crn(account_id, "user", user_id))
    return user


@post("/v1/users", status_code=201, opt={"action": "iam:CreateUser", "idempotent": True})
async def create_user(
    data: JSONBody[CreateUser], ctx: NamedDependency[Context]
) -> Reply[OneNewUser]:
    """Create a person, a member of the account's organization with no role yet."""
    account_id = account_of(ctx)
    ctx.authorize(iam_crn(account_id, "user", "*"))
    email = email_address(data.email)
    password = users.new_password()
    kept = await ctx.passwords.hash(password)
    now = ctx.clock()
    user = User(
        id=ctx.new_id(),
        email=email,
        password=kept,
        must_change_password=True,
        organization_id=ctx.new_id(),
        status="active",
        created_at=now,
        updated_at=now,
    )
    return await ctx.commit(
        users.create_user,
        account_id,
        user,
        wrap=partial(_new, password),
        status=201,
        location=lambda made: f"/v1/users/{made.id}",
    )


@get("/v1/users", opt={"action": "iam:ListUsers", "query": Page})
async def list_users(ctx: NamedDependency[Context]) -> ManyUsers:
    """List the persons who have joined the account's organization, oldest first."""
    account_id = account_of(ctx)
    ctx.authorize(iam_crn(account_id, "user", "*"))
    organization_id = await ctx.database.read(organization_of, account_id)
    found, meta = await read_page(
        ctx,
        ctx.query(Page),
        list_active_members,
        count_active_members,
        organization_id,
        key=lambda user: user.id,
    )
    return ManyUsers(users=[user_record(user) for user in found], meta=meta)


@get("/v1/users/{user_id:str}", opt={"action": "iam:GetUser"})
async def get_user(user_id: FromPath[str], ctx: NamedDependency[Context]) -> OneUser:
    """Return a person of the account's organization."""
    return _one(await _authorized(ctx, user_id))


@patch("/v1/users/{user_id:str}", opt={"action": "iam:UpdateUser", "statuses": (409,)})
async def update_user(
    user_id: FromPath[str], data: JSONBody[UpdateUser], ctx: NamedDependency[Context]
) -> Reply[OneUser]:
    """Suspend a person who is in no other organization, or let it in again."""
    user = await _authorized(ctx, user_id)
    status = None if data.status is UNSET else data.status
    return await ctx.commit(
        users.set_user_status, account_of(ctx), user.id, status, ctx.clock(), wrap=_one
    )


@delete("/v1/users/{user_id:str}", opt={"action": "iam:DeleteUser", "statuses": (409,)})
async def delete_user(user_id: FromPath[str], ctx: NamedDependency[Context]) -> None:
    """Delete a person who is in no other organization and owns no account."""
    user = await _authorized(ctx, user_id)
    await ctx.database.write(users.delete_user, account_of(ctx), user.id, ctx.clock())


HANDLERS: Final = (create_user, list_users, get_user, update_user, delete_user)
