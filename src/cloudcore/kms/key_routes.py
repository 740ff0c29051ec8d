"""``/v1/keys``: create, show, change, rotate and delete the keys of an account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from cloudcore.db.base import Connection
from cloudcore.kms import services
from cloudcore.kms.needs import KmsNeeds
from cloudcore.kms.records import (
    CreateKey,
    DeletionQuery,
    KeyQuery,
    KeyVersionRecord,
    ManyKeys,
    ManyKeyVersions,
    OneKey,
    UpdateKey,
    key_record,
    one_key,
)
from cloudcore.kms.rows import (
    Key,
    count_keys,
    count_versions,
    key_crn,
    list_keys,
    list_versions,
    text_of,
)
from cloudcore.kms.services import RotatedMeanwhile
from cloudcore.kms.specs import usage_of
from cloudcore.resource_names import check_name, check_tags
from cloudcore.web.app import Needs
from cloudcore.web.callers import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.listing import read_page
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import changes_of, rfc3339

PATH: Final = "/v1/keys"
ONE: Final = PATH + "/{key_id:str}"
_ATTEMPTS: Final = 5


async def authorized_key(ctx: RequestContext, key_id: str) -> Key:
    """Return a key of the caller's account; raise `AccessDenied` if policies refuse.

    A deleted key has no name; policies see its id instead, which no name looks like.
    """
    region = ctx.settings.region
    found = await ctx.database.read(services.get_key, account_of(ctx), region, key_id)
    ctx.authorize(key_crn(region, found.account_id, found.name or found.id))
    return found


@post(
    PATH, status_code=201, opt={"action": "kms:CreateKey", "idempotent": True, "statuses": (429,)}
)
async def create_key(
    data: JSONBody[CreateKey], ctx: NamedDependency[RequestContext], needs: Needs[KmsNeeds]
) -> Reply[OneKey]:
    """Create a key; its material never leaves the service. An account has at most 1,000 keys.

    RSA keys of an account are made one at a time: a request meanwhile gets 429, and may come again.
    """
    account_id = account_of(ctx)
    check_name(data.name)
    check_tags(data.tags)
    usage = usage_of(data.key_spec, data.key_usage)
    region = ctx.settings.region
    ctx.authorize(key_crn(region, account_id, data.name))
    # Before the material is made, which costs seconds for RSA; and again when the key is inserted.
    await ctx.database.read(services.check_can_create, account_id, region, data.name)
    key, version = await needs.maker.new_key(
        account_id,
        data.name,
        ctx.clock(),
        spec=data.key_spec,
        usage=usage,
        description=data.description,
        tags=data.tags,
    )
    return await ctx.commit(
        services.create_key, key, version, wrap=one_key, location=lambda made: f"{PATH}/{made.id}"
    )


@get(PATH, opt={"action": "kms:DescribeKeys", "query": KeyQuery})
async def list_account_keys(ctx: NamedDependency[RequestContext]) -> ManyKeys:
    """List the account's keys, oldest first; deleted ones only if the filter asks for them."""
    account_id, region, query = account_of(ctx), ctx.settings.region, ctx.query(KeyQuery)
    ctx.authorize(key_crn(region, account_id, "*"))
    states = (query.state,) if query.state else ("enabled", "disabled", "pending_deletion")
    found, meta = await read_page(
        ctx,
        query,
        list_keys,
        count_keys,
        account_id,
        region,
        text_of(*states),
        key=lambda key: key.id,
    )
    return ManyKeys(keys=[key_record(each) for each in found], meta=meta)


@get(ONE, opt={"action": "kms:DescribeKeys"})
async def get_key(key_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> OneKey:
    """Return a key, also a deleted one."""
    return one_key(await authorized_key(ctx, key_id))


@patch(ONE, opt={"action": "kms:UpdateKey", "statuses": (409,)})
async def update_key(
    key_id: FromPath[str], data: JSONBody[UpdateKey], ctx: NamedDependency[RequestContext]
) -> Reply[OneKey]:
    """Change the description or the tags of a key."""
    key = await authorized_key(ctx, key_id)
    if data.tags is not UNSET:
        check_tags(data.tags)
    return await ctx.commit(services.update_key, key, changes_of(data), ctx.clock(), wrap=one_key)


@post(
    ONE + "/enable",
    status_code=200,
    opt={"action": "kms:EnableKey", "idempotent": True},
)
async def enable_key(key_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> Reply[OneKey]:
    """Enable a disabled key; an enabled one stays as it is."""
    key = await authorized_key(ctx, key_id)
    return await _commit_state(ctx, services.enable_key, key)


@post(
    ONE + "/disable",
    status_code=200,
    opt={"action": "kms:DisableKey", "idempotent": True},
)
async def disable_key(key_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> Reply[OneKey]:
    """Disable a key: nothing is encrypted or decrypted with it until it is enabled."""
    key = await authorized_key(ctx, key_id)
    return await _commit_state(ctx, services.disable_key, key)


async def _commit_state(
    ctx: RequestContext, change: Callable[[Connection, Key, int], Key], key: Key
) -> Reply[OneKey]:
    """Change the state of a key; if it has that already, there is nothing to record."""
    now = ctx.clock()
    return await ctx.commit(
        change, key, now, wrap=one_key, told=lambda made: {} if made.updated_at == now else None
    )


@delete(
    ONE,
    status_code=202,
    opt={"action": "kms:ScheduleKeyDeletion", "query": DeletionQuery, "statuses": (409,)},
)
async def delete_key(key_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> Reply[OneKey]:
    """Delete a key in 7 to 30 days; until then it cannot be used, and the deletion be cancelled.

    Then its material is erased: what only this key encrypted can never be read again.
    """
    days = ctx.query(DeletionQuery).pending_window_days
    key = await authorized_key(ctx, key_id)
    return await ctx.commit(services.schedule_deletion, key, days, ctx.clock(), wrap=one_key)


@post(
    ONE + "/cancel-deletion",
    status_code=200,
    opt={"action": "kms:CancelKeyDeletion", "idempotent": True},
)
async def cancel_key_deletion(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Reply[OneKey]:
    """Cancel the deletion of a key, which is disabled then: enable it to use it again."""
    key = await authorized_key(ctx, key_id)
    return await ctx.commit(services.cancel_deletion, key, ctx.clock(), wrap=one_key)


@post(
    ONE + "/rotate",
    status_code=200,
    opt={"action": "kms:RotateKey", "idempotent": True},
)
async def rotate_key(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext], needs: Needs[KmsNeeds]
) -> Reply[OneKey]:
    """Give an `aes-256` key new material for what is encrypted from now on.

    Its older versions still decrypt what they have encrypted. A key has at most 1,000 versions.
    """
    key = await authorized_key(ctx, key_id)
    for _ in range(_ATTEMPTS):
        services.check_rotatable(key)
        version = await needs.maker.new_version(key, key.current_version + 1, ctx.clock())
        try:
            return await ctx.commit(services.rotate_key, version, ctx.clock(), wrap=one_key)
        except RotatedMeanwhile:
            key = await ctx.database.read(services.get_key, key.account_id, key.region, key.id)
    raise RotatedMeanwhile


@get(ONE + "/versions", opt={"action": "kms:DescribeKeys", "query": PageQuery})
async def list_key_versions(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> ManyKeyVersions:
    """List the versions of a key, oldest first; a deleted key has none."""
    key = await authorized_key(ctx, key_id)
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        list_versions,
        count_versions,
        key.account_id,
        key.id,
        key=lambda version: str(version[0]),
    )
    versions = [
        KeyVersionRecord(
            version=number,
            is_current=number == key.current_version,
            created_at=rfc3339(created_at),
        )
        for number, created_at in found
    ]
    return ManyKeyVersions(versions=versions, meta=meta)


HANDLERS: Final = (
    create_key,
    list_account_keys,
    get_key,
    update_key,
    enable_key,
    disable_key,
    delete_key,
    cancel_key_deletion,
    rotate_key,
    list_key_versions,
)
