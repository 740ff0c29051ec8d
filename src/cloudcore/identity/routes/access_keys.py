"""``/v1/service-accounts/{id}/access-keys``: create, list, show, change and delete access keys."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Final, Literal

from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.errors import invalid_field
from cloudcore.identity.rights.lock_out import CHECKED
from cloudcore.identity.routes.common import Answers, authorized
from cloudcore.identity.rows.service_accounts import (
    ACCESS_KEYS,
    SERVICE_ACCOUNTS,
    AccessKey,
    ServiceAccount,
)
from cloudcore.identity.services import service_accounts
from cloudcore.identity.services.service_accounts import NewAccessKey, new_access_key
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import (
    LAST_MOMENT,
    RFC3339,
    RequestBody,
    ResponseBody,
    Timestamp,
    changes_of,
    moment_of,
)

KeyDescription = Annotated[str, Meta(max_length=200)]
KeyStatus = Literal["active", "inactive"]
_PATH: Final = "/v1/service-accounts/{service_account_id:str}/access-keys"


class CreateAccessKey(RequestBody):
    """A new access key."""

    description: KeyDescription = ""
    expires_at: Timestamp | None = None
    """When the key expires, in the future; by default it does not expire."""


class UpdateAccessKey(RequestBody):
    """Changes of an access key."""

    status: KeyStatus | UnsetType = UNSET
    description: KeyDescription | UnsetType | None = UNSET
    expires_at: Timestamp | UnsetType | None = UNSET
    """When the key expires, in the future; null if it does not expire."""


class AccessKeyRecord(ResponseBody):
    """An access key, without its secret."""

    id: Uuid
    crn: str
    service_account: ResourceRef
    access_key_id: str
    description: str
    status: KeyStatus
    expires_at: RFC3339 | None
    """From then on the key does not work, whatever its status."""
    last_used_at: RFC3339 | None
    """Rounded down to the hour, but not before `created_at`; recorded with a delay of minutes."""
    created_at: RFC3339


class NewAccessKeyRecord(AccessKeyRecord):
    """An access key with its secret, which is shown only once."""

    secret_access_key: str


def _end_of(expires_at: datetime | None, now: int) -> int | None:
    """Return the expiry of a key in microseconds since the epoch, or None if it has none.

    Raise `InvalidInput` if it is not in the future.
    """
    if expires_at is None:
        return None
    end = moment_of(expires_at)
    if not now < end <= LAST_MOMENT:
        raise invalid_field(
            "expires_at",
            "a moment in the future; to end a key now, make it inactive or delete it",
            "out_of_range",
        )
    return end


def new_key(
    ctx: RequestContext, owner: ServiceAccount, wanted: CreateAccessKey, now: int
) -> tuple[NewAccessKey, AccessKey]:
    """Generate a key for a service account; return (key with its secret, row to store)."""
    made, end = new_access_key(), _end_of(wanted.expires_at, now)
    of = ctx.new_id(), *owner.as_owner
    return made, made.row(ctx.keyring, *of, now, wanted.description, end)


_KEY: Final = Answers(AccessKeyRecord, "access_key")
NEW_KEY: Final = Answers(NewAccessKeyRecord, "access_key", noun="new access key")


@NEW_KEY.creates(_PATH, "iam:CreateAccessKey")
async def create_access_key(
    service_account_id: FromPath[str], ctx: Context, data: JSONBody[CreateAccessKey | None] = None
) -> Reply[ResponseBody]:
    """Create an access key; its secret is shown only in this answer."""
    owner = await authorized(ctx, SERVICE_ACCOUNTS, service_account_id)
    made, row = new_key(ctx, owner, data or CreateAccessKey(), ctx.clock())
    return await ctx.commit(
        service_accounts.create_access_key,
        row,
        wrap=partial(NEW_KEY.one, service_account=owner.reference, secret_access_key=made.secret),
        location=lambda key: f"/v1/service-accounts/{owner.id}/access-keys/{key.id}",
    )


@_KEY.lists(_PATH, "iam:ListAccessKeys")
async def list_service_account_keys(
    service_account_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """List the access keys of a service account, oldest first."""
    owner = await authorized(ctx, SERVICE_ACCOUNTS, service_account_id)
    return await _KEY.page(ctx, ACCESS_KEYS, owner.as_owner, service_account=owner.reference)


@_KEY.gets(_PATH + "/{key_id:str}", "iam:GetAccessKey")
async def get_access_key(
    service_account_id: FromPath[str], key_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return an access key; `key_id` is the id of the record."""
    owner = await authorized(ctx, SERVICE_ACCOUNTS, service_account_id)
    found = await ctx.database.read(ACCESS_KEYS.get, owner.as_owner, key_id)
    return _KEY.one(found, service_account=owner.reference)


@_KEY.updates(_PATH + "/{key_id:str}", "iam:UpdateAccessKey", **CHECKED)
async def update_access_key(
    service_account_id: FromPath[str],
    key_id: FromPath[str],
    data: JSONBody[UpdateAccessKey],
    ctx: Context,
) -> Reply[ResponseBody]:
    """Activate or deactivate an access key, or change its description or its expiry.

    Tokens, role sessions and container logins that were made with the key end with it.
    """
    owner = await authorized(ctx, SERVICE_ACCOUNTS, service_account_id)
    now, changes = ctx.clock(), changes_of(data, CreateAccessKey)
    if data.expires_at is not UNSET:
        changes["expires_at"] = _end_of(data.expires_at, now)
    return await ctx.commit(
        service_accounts.update_access_key,
        owner.as_owner,
        key_id,
        changes,
        now,
        wrap=partial(_KEY.one, service_account=owner.reference),
    )


@deletes(_PATH + "/{key_id:str}", "iam:DeleteAccessKey", **CHECKED)
async def delete_access_key(
    service_account_id: FromPath[str], key_id: FromPath[str], ctx: Context
) -> None:
    """Delete an access key, with the login credentials that were made with it."""
    owner = await authorized(ctx, SERVICE_ACCOUNTS, service_account_id)
    await ctx.database.write(service_accounts.delete_access_key, owner.as_owner, key_id)
