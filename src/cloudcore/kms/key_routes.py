"""``/v1/keys``: create, show, change, rotate and delete the keys of an account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from cloudcore.db.base import Connection
from cloudcore.kms import services
from cloudcore.kms.key import KEY, Key
from cloudcore.kms.needs import KmsNeeds
from cloudcore.kms.records import CreateKey, DeletionQuery, KeyVersionRecord, ManyKeyVersions
from cloudcore.kms.rows import count_versions, list_versions
from cloudcore.kms.services import RotatedMeanwhile
from cloudcore.kms.specs import usage_of
from cloudcore.kms.tables import KEY_ROWS
from cloudcore.resource_names import check_name, check_tags
from cloudcore.resources.methods import Methods
from cloudcore.resources.routes import answers_one, standard_routes
from cloudcore.web.app import Needs
from cloudcore.web.callers import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.listing import read_page
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import ResponseBody, rfc3339

_ATTEMPTS: Final = 5

KEYS: Final = Methods(
    KEY_ROWS,
    check=services.check_change,
    statuses={"update": (409,)},
    docs={
        "list": "List the account's keys, oldest first; deleted ones only if the filter asks for"
        " them.",
        "get": "Return a key, also a deleted one.",
        "update": "Change the description or the tags of a key.",
    },
)


@post(
    KEY.path,
    status_code=201,
    opt={"action": "kms:CreateKey", "idempotent": True, "statuses": (429,)},
)
@answers_one(KEYS)
async def create_key(
    data: JSONBody[CreateKey], ctx: NamedDependency[RequestContext], needs: Needs[KmsNeeds]
) -> Reply[ResponseBody]:
    """Create a key; its material never leaves the service. An account has at most 1,000 keys.

    RSA keys of an account are made one at a time: a request meanwhile gets 429, and may come again.
    """
    account_id = account_of(ctx)
    check_name(data.name)
    check_tags(data.tags)
    usage = usage_of(data.key_spec, data.key_usage)
    region = ctx.settings.region
    ctx.authorize(KEY.crn(region, account_id, data.name))
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
        services.create_key,
        key,
        version,
        wrap=KEYS.one,
        location=lambda made: f"{KEY.path}/{made.id}",
    )


@post(
    KEY.path_of_one + "/enable",
    status_code=200,
    opt={"action": "kms:EnableKey", "idempotent": True},
)
@answers_one(KEYS)
async def enable_key(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Reply[ResponseBody]:
    """Enable a disabled key; an enabled one stays as it is."""
    key = await KEYS.authorized(ctx, key_id)
    return await _commit_state(ctx, services.enable_key, key)


@post(
    KEY.path_of_one + "/disable",
    status_code=200,
    opt={"action": "kms:DisableKey", "idempotent": True},
)
@answers_one(KEYS)
async def disable_key(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Reply[ResponseBody]:
    """Disable a key: nothing is encrypted or decrypted with it until it is enabled."""
    key = await KEYS.authorized(ctx, key_id)
    return await _commit_state(ctx, services.disable_key, key)


async def _commit_state(
    ctx: RequestContext, change: Callable[[Connection, Key, int], Key], key: Key
) -> Reply[ResponseBody]:
    """Change the state of a key; if it has that already, there is nothing to record."""
    now = ctx.clock()
    return await ctx.commit(
        change, key, now, wrap=KEYS.one, told=lambda made: {} if made.updated_at == now else None
    )


@delete(
    KEY.path_of_one,
    status_code=202,
    opt={"action": "kms:ScheduleKeyDeletion", "query": DeletionQuery, "statuses": (409,)},
)
@answers_one(KEYS)
async def delete_key(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Reply[ResponseBody]:
    """Delete a key in 7 to 30 days; until then it cannot be used, and the deletion be cancelled.

    Then its material is erased: what only this key encrypted can never be read again.
    """
    days = ctx.query(DeletionQuery).pending_window_days
    key = await KEYS.authorized(ctx, key_id)
    return await ctx.commit(services.schedule_deletion, key, days, ctx.clock(), wrap=KEYS.one)


@post(
    KEY.path_of_one + "/cancel-deletion",
    status_code=200,
    opt={"action": "kms:CancelKeyDeletion", "idempotent": True},
)
@answers_one(KEYS)
async def cancel_key_deletion(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Reply[ResponseBody]:
    """Cancel the deletion of a key, which is disabled then: enable it to use it again."""
    key = await KEYS.authorized(ctx, key_id)
    return await ctx.commit(services.cancel_deletion, key, ctx.clock(), wrap=KEYS.one)


@post(
    KEY.path_of_one + "/rotate",
    status_code=200,
    opt={"action": "kms:RotateKey", "idempotent": True},
)
@answers_one(KEYS)
async def rotate_key(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext], needs: Needs[KmsNeeds]
) -> Reply[ResponseBody]:
    """Give an `aes-256` key new material for what is encrypted from now on.

    Its older versions still decrypt what they have encrypted. A key has at most 1,000 versions.
    """
    key = await KEYS.authorized(ctx, key_id)
    for _ in range(_ATTEMPTS):
        services.check_rotatable(key)
        version = await needs.maker.new_version(key, key.current_version + 1, ctx.clock())
        try:
            return await ctx.commit(services.rotate_key, version, ctx.clock(), wrap=KEYS.one)
        except RotatedMeanwhile:
            key = await ctx.database.read(KEY_ROWS.get, key.account_id, key.region, key.id)
    raise RotatedMeanwhile


@get(KEY.path_of_one + "/versions", opt={"action": "kms:DescribeKeys", "query": PageQuery})
async def list_key_versions(
    key_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> ManyKeyVersions:
    """List the versions of a key, oldest first; a deleted key has none."""
    key = await KEYS.authorized(ctx, key_id)
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
    *standard_routes(KEYS),
    enable_key,
    disable_key,
    delete_key,
    cancel_key_deletion,
    rotate_key,
    list_key_versions,
)
