"""``/v1/users/me/container-passwords``: passwords for the caller's container clients."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Final, TypeVar

from litestar.params import FromPath, JSONBody
from msgspec import Meta

from cloudcore.db.base import Connection
from cloudcore.identity.needs import IdentityNeeds
from cloudcore.identity.routes.common import Answers
from cloudcore.identity.rows.container_passwords import CONTAINER_PASSWORDS, ContainerPassword
from cloudcore.identity.services import container_passwords
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import answer_of, deletes
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import person_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import NamedPageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

USERNAME: Final = "token"
"""The user name for logins with any container password."""

_PATH: Final = "/v1/users/me/container-passwords"
PasswordName = Annotated[
    str, Meta(min_length=1, max_length=64, pattern="^[A-Za-z0-9_=,.@-]{1,64}$(?!\\n)")
]


class CreateContainerPassword(RequestBody):
    """A new container password."""

    saturates_integers: ClassVar[bool] = True

    name: PasswordName
    """What the password is for, such as the name of a machine; unique for each person."""
    role: Annotated[str, Meta(min_length=1, max_length=512)]
    """The role in which the password acts: id, CRN, or the name of an assigned role."""
    duration_seconds: int | None = None
    """900 to the operator's maximum (12 hours unless changed), which is the default; other values
    are raised or lowered to these limits."""


class ContainerPasswordRecord(ResponseBody):
    """A container password, without the password itself."""

    id: Uuid
    name: str
    role: ResourceRef
    account: ResourceRef
    """The account in which the role acts; the name is the handle."""
    created_at: RFC3339
    expires_at: RFC3339
    last_used_at: RFC3339 | None
    """Rounded down to the hour, but not before `created_at`; recorded with a delay of minutes."""


class NewContainerPasswordRecord(ContainerPasswordRecord):
    """A container password with the credentials for a login, which are shown only once."""

    username: str
    password: str
    host: str
    """The host to log in to."""


R = TypeVar("R", bound=ContainerPasswordRecord)


def _record(kind: type[R], found: ContainerPassword, **more: object) -> R:
    role = found.role
    reference = ResourceRef(id=role.id, crn=role.crn, name=role.name)
    return answer_of(kind, found, role=reference, account=role.account, **more)


_FIELD: Final = "container_password"
_PASSWORD: Final = Answers(
    ContainerPasswordRecord, _FIELD, partial(_record, ContainerPasswordRecord)
)
_NEW: Final = Answers(
    NewContainerPasswordRecord,
    _FIELD,
    partial(_record, NewContainerPasswordRecord),
    noun="new container password",
)


def _create(
    tx: Connection,
    ctx: RequestContext,
    needs: IdentityNeeds,
    text: str,
    data: CreateContainerPassword,
) -> ContainerPassword:
    made = container_passwords.create_container_password(
        tx, ctx, text, data.name, data.role, data.duration_seconds, ctx.clock()
    )
    permission = needs.login_permission(made.role.account_id)
    container_passwords.check_login_permission(ctx, tx, made, permission)
    return made


@_NEW.creates(_PATH, "iam:CreateContainerPassword", statuses=(404,))
async def create_container_password(
    data: JSONBody[CreateContainerPassword], ctx: Context, needs: Needs[IdentityNeeds]
) -> Reply[ResponseBody]:
    """Create a password for container clients, in one of the caller's roles; it is shown once.

    The caller must be able to assume the role as by `POST /v1/assume-role`, and the role must be
    allowed to log container clients in. A person has at most 50 container passwords.
    """
    ctx.authorize(person_of(ctx).crn)
    text = container_passwords.new_text(ctx.new_id())
    secret = {"username": USERNAME, "password": text, "host": ctx.settings.host}
    return await ctx.commit(
        _create,
        ctx,
        needs,
        text,
        data,
        wrap=partial(_NEW.one, **secret),
        location=lambda made: f"{_PATH}/{made.id}",
    )


@_PASSWORD.lists(_PATH, "iam:ListContainerPasswords", NamedPageQuery)
async def list_own_container_passwords(ctx: Context) -> ResponseBody:
    """List the caller's container passwords, by name."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    return await _PASSWORD.page(ctx, CONTAINER_PASSWORDS, person.id, query=NamedPageQuery)


@_PASSWORD.gets(_PATH + "/{password_id:str}", "iam:GetContainerPassword")
async def get_container_password(password_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a container password of the caller, without the password itself."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    return _PASSWORD.one(await ctx.database.read(CONTAINER_PASSWORDS.get, person.id, password_id))


@deletes(_PATH + "/{password_id:str}", "iam:DeleteContainerPassword")
async def delete_container_password(password_id: FromPath[str], ctx: Context) -> None:
    """Revoke a container password: no client gets another token with it."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    await ctx.database.write(
        container_passwords.delete_container_password, ctx, person.id, password_id
    )
