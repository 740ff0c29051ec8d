"""``/v1/buckets``: create, show, change and delete buckets, and their CORS rules."""

from __future__ import annotations

from typing import Final

from litestar import delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.iam.principal import stored_source
from cloudcore.resource_names import check_tags
from cloudcore.storage import buckets, rewrapping
from cloudcore.storage.bucket import BUCKET, Bucket, named_bucket_crn
from cloudcore.storage.bucket_rows import (
    Held,
    damaged_keys,
    held_by_each,
    list_buckets,
)
from cloudcore.storage.bucket_status import MOST_DAMAGED, bucket_faults, rewrap_record
from cloudcore.storage.bytes_port import KeyRef
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.records import (
    BucketQuery,
    CorsRules,
    CreateBucket,
    ManyBuckets,
    OneBucket,
    UpdateBucket,
    bucket_record,
    cors_rules,
    given_rules,
)
from cloudcore.storage.rules import check_bucket_name
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.web.app import Needs
from cloudcore.web.callers import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import read_page

PATH: Final = "/v1/buckets"
ONE: Final = PATH + "/{bucket:str}"
_CORS: Final = ONE + "/cors"
_USE_KEY: Final = "kms:UseKey"
"""The action on a key that binding a bucket to it needs."""


async def authorized_bucket(ctx: RequestContext, name: str) -> Bucket:
    """Return a bucket of the caller's account, on which the caller may do the operation.

    Raises:
        AccessDenied: policies refuse it, whether or not there is such a bucket.
        NoSuchBucket: the account has no such bucket.

    """
    ctx.authorize(bucket_crn_of(ctx, name))
    return await found_bucket(ctx, name)


async def found_bucket(ctx: RequestContext, name: str) -> Bucket:
    """Return a bucket of the caller's account, for what has authorized by key.

    Raises:
        NoSuchBucket: the account has no such bucket.

    """
    region = ctx.settings.region
    return await ctx.database.read(buckets.find_bucket, account_of(ctx), region, name)


def bucket_crn_of(ctx: RequestContext, name: str) -> str:
    """Return the CRN of a bucket of the caller's account, whether or not there is one.

    Raises:
        NoSuchBucket: no bucket can be called so.

    """
    return named_bucket_crn(ctx.settings.region, account_of(ctx), name)


@post(
    PATH,
    status_code=201,
    opt={"action": "storage:CreateBucket", "idempotent": True, "statuses": (404,)},
)
async def create_bucket(
    data: JSONBody[CreateBucket],
    ctx: NamedDependency[RequestContext],
    needs: Needs[StorageNeeds],
) -> Reply[OneBucket]:
    """Create a bucket. Its name is unique in the region; an account has at most 1,000.

    With `kms_key`, the caller needs `kms:UseKey` on that key.
    """
    account_id, region = account_of(ctx), ctx.settings.region
    check_bucket_name(data.name)
    check_tags(data.tags)
    if data.region not in (None, region):
        raise InvalidInput(
            f"region: must be this region, {region}", field="region", reason="foreign_region"
        )
    ctx.authorize(BUCKET.crn(region, account_id, data.name))
    key = None if data.kms_key is None else await _key_to_bind(ctx, needs, data.kms_key)
    now = ctx.clock()
    bucket = Bucket(
        id=ctx.new_id(),
        account_id=account_id,
        region=region,
        name=data.name,
        kms_key_id=key and key.id,
        tags=data.tags,
        created_at=now,
        updated_at=now,
    )

    def create(tx: Connection) -> OneBucket:
        ctx.details["bucket_id"] = bucket.id
        return _described(tx, needs, buckets.create_bucket(tx, bucket))

    return await ctx.commit(create, wrap=_same, location=lambda made: f"{PATH}/{made.bucket.name}")


@get(PATH, opt={"action": "storage:ListBuckets", "query": BucketQuery})
async def list_account_buckets(ctx: NamedDependency[RequestContext]) -> ManyBuckets:
    """List the account's buckets by name."""
    account_id, region, query = account_of(ctx), ctx.settings.region, ctx.query(BucketQuery)
    ctx.authorize(BUCKET.crn(region, account_id, "*"))
    of = account_id, region, [query.name or ""]
    found, meta = await read_page(
        ctx, query, list_buckets, BUCKET_ROWS.count, *of, key=lambda each: each.name
    )
    ids = [each.id for each in found]
    held = await ctx.database.read(held_by_each, account_id, ids) if ids else {}
    return ManyBuckets(
        buckets=[bucket_record(each, held.get(each.id, Held())) for each in found], meta=meta
    )


@get(ONE, opt={"action": "storage:GetBucket"})
async def get_bucket(
    bucket: FromPath[str], ctx: NamedDependency[RequestContext], needs: Needs[StorageNeeds]
) -> OneBucket:
    """Return a bucket, with its key and what it holds."""
    found = await authorized_bucket(ctx, bucket)
    return await ctx.database.read(_described, needs, found)


@patch(ONE, opt={"action": "storage:UpdateBucket"})
async def update_bucket(
    bucket: FromPath[str],
    data: JSONBody[UpdateBucket],
    ctx: NamedDependency[RequestContext],
    needs: Needs[StorageNeeds],
) -> Reply[OneBucket]:
    """Change the tags of a bucket, or bind it to another KMS key (`kms:UseKey`).

    A key that is given, also the same again, starts a run that lets it open all that is stored: no
    byte is written anew. The bucket shows how far that is.
    """
    found, run_id = await authorized_bucket(ctx, bucket), ctx.new_id()
    changes: dict[str, object] = {}
    if data.tags is not UNSET:
        check_tags(data.tags or {})
        changes["tags"] = data.tags or {}
    if data.kms_key is not UNSET:
        key = None if data.kms_key is None else await _key_to_bind(ctx, needs, data.kms_key)
        changes["kms_key_id"] = key and key.id
    now = ctx.clock()

    def change(tx: Connection) -> OneBucket:
        changed = buckets.BUCKETS.update(tx, found, changes, now)
        if "kms_key_id" in changes:
            caller = ctx.caller
            assert caller is not None
            rewrapping.start_rewrap(
                tx,
                changed,
                run_id,
                started_by=caller.crn,
                started_by_source=stored_source(caller.source),
                now=now,
            )
        return _described(tx, needs, changed)

    return await ctx.commit(change, wrap=_same)


@delete(ONE, status_code=204, opt={"action": "storage:DeleteBucket", "statuses": (409,)})
async def delete_bucket(
    bucket: FromPath[str], ctx: NamedDependency[RequestContext], needs: Needs[StorageNeeds]
) -> None:
    """Delete a bucket, and end its open multipart uploads. One with objects stays (409)."""
    found = await authorized_bucket(ctx, bucket)
    await buckets.end_uploads(needs, found)

    def erase(tx: Connection) -> None:
        ctx.details["bucket_id"] = found.id
        buckets.BUCKETS.remove(tx, found, ctx.clock())

    await ctx.database.write(erase)


@get(_CORS, opt={"action": "storage:GetBucketCORS"})
async def get_bucket_cors(bucket: FromPath[str], ctx: NamedDependency[RequestContext]) -> CorsRules:
    """Return the CORS rules of a bucket; 404 if it has none."""
    return cors_rules(buckets.get_cors(await authorized_bucket(ctx, bucket)))


@put(_CORS, status_code=200, opt={"action": "storage:PutBucketCORS"})
async def put_bucket_cors(
    bucket: FromPath[str], data: JSONBody[CorsRules], ctx: NamedDependency[RequestContext]
) -> Reply[CorsRules]:
    """Replace the CORS rules of a bucket. They hold at the S3 endpoint, for web pages."""
    found, rules = await authorized_bucket(ctx, bucket), given_rules(data)

    def change(tx: Connection) -> Bucket:
        return buckets.put_cors(tx, found, rules, ctx.clock())

    return await ctx.commit(change, wrap=lambda _: cors_rules(rules))


@delete(_CORS, status_code=204, opt={"action": "storage:PutBucketCORS"})
async def delete_bucket_cors(bucket: FromPath[str], ctx: NamedDependency[RequestContext]) -> None:
    """Take the CORS rules of a bucket away, if it has any."""
    found = await authorized_bucket(ctx, bucket)
    await ctx.database.write(buckets.put_cors, found, None, ctx.clock())


async def _key_to_bind(ctx: RequestContext, needs: StorageNeeds, value: str) -> KeyRef:
    authorize = ctx.right_to(_USE_KEY)
    return await ctx.database.read(needs.keys.resolve, account_of(ctx), value, authorize)


def _described(tx: Connection, needs: StorageNeeds, bucket: Bucket) -> OneBucket:
    key = needs.keys.describe(tx, bucket.account_id, bucket.kms_key_id)
    record = bucket_record(bucket, buckets.held(tx, bucket), key)
    record.rewrap = rewrap_record(rewrapping.last_rewrap(tx, bucket.id))
    record.faults = bucket_faults(damaged_keys(tx, bucket.account_id, bucket.id, MOST_DAMAGED))
    return OneBucket(bucket=record)


def _same(answer: OneBucket) -> OneBucket:
    return answer


HANDLERS: Final = (
    create_bucket,
    list_account_buckets,
    get_bucket,
    update_bucket,
    delete_bucket,
    get_bucket_cors,
    put_bucket_cors,
    delete_bucket_cors,
)
