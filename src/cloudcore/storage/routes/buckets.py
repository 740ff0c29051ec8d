"""``/v1/buckets``: create, show, change and delete buckets, and their CORS rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from litestar import delete, get, put
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType, field, structs

from cloudcore.db.base import Connection
from cloudcore.errors import invalid_field
from cloudcore.iam.principal import stored_source
from cloudcore.jobs.faults import Fault
from cloudcore.resource_names import Uuid, check_tags
from cloudcore.storage import bucket_rows, buckets
from cloudcore.storage.bucket import BUCKET, Bucket, check_bucket_name
from cloudcore.storage.cors import CorsRule, CorsRules, cors_rules
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.pieces import rewrapping
from cloudcore.storage.pieces.rewrapping import Rewrap, rewrap_record
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.web.answers import RecordAnswers
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import FaultRecord, KeyReference, fault_record, reference_to
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

PATH: Final = "/v1/buckets"
ONE: Final = PATH + "/{bucket:str}"
_CORS: Final = ONE + "/cors"
_USE_KEY: Final = "kms:UseKey"
"""The action on a KMS key that the caller needs to bind a bucket to the key."""
MOST_DAMAGED: Final = 100
_NAMED: Final = 10

BucketName = Annotated[str, Meta(min_length=3, max_length=63)]
GivenKey = Annotated[
    str, Meta(max_length=512, description="The id, the name or the CRN of an `aes-256` key.")
]


class CreateBucket(RequestBody):
    """A new bucket; its name and region are fixed."""

    name: BucketName
    """Unique in the region; letters, digits, `-` and `.`, as in a host name."""
    region: str | None = None
    """Must be this region."""
    kms_key: GivenKey | None = None
    """Seals the stored bytes; without it, the account's platform key does."""
    tags: dict[str, str] = field(default_factory=dict)


class UpdateBucket(RequestBody):
    """The fields to change; `tags` are replaced whole."""

    kms_key: GivenKey | UnsetType | None = UNSET
    """Seals new bytes at once, and all stored bytes soon. Null: the account's platform key."""
    tags: dict[str, str] | UnsetType | None = UNSET


class BucketQuery(PageQuery):
    """The filter of a list of buckets."""

    name: BucketName | None = None
    """Only the bucket of this name."""


class BucketRecord(ResponseBody):
    """A bucket."""

    id: Uuid
    crn: str
    name: str
    region: str
    tags: dict[str, str]
    object_count: int
    byte_count: int
    """Bytes of the bucket's objects."""
    upload_byte_count: int
    """Bytes of the parts of open multipart uploads."""
    created_at: RFC3339
    kms_key: KeyReference | UnsetType | None = UNSET
    """Only for a single bucket. Null: the account has no key yet."""
    rewrap: Rewrap | UnsetType | None = UNSET
    """Only for a single bucket: the last run that moved stored bytes to its key. Null: none yet."""
    faults: Sequence[FaultRecord] | UnsetType = UNSET
    """Only for a single bucket."""


def bucket_record(bucket: Bucket, held: bucket_rows.BucketUsage, **single: Any) -> BucketRecord:  # noqa: ANN401
    """Convert a bucket for a response; `single` has the fields that lists leave out."""
    return BucketRecord(
        id=bucket.id,
        crn=bucket.crn,
        name=bucket.name,
        region=bucket.region,
        tags=dict(bucket.tags),
        object_count=held.objects,
        byte_count=held.object_bytes,
        upload_byte_count=held.upload_bytes,
        created_at=rfc3339(bucket.created_at),
        **single,
    )


ANSWERS: Final = RecordAnswers(BucketRecord, "bucket", bucket_record)


def bucket_faults(damaged: Sequence[tuple[str, int]]) -> list[FaultRecord]:
    """Return the faults of a bucket; `damaged` has (key, time of discovery) of its objects."""
    if not damaged:
        return []
    keys = [repr(key) for key, _ in damaged[:_NAMED]]
    more = len(damaged) - len(keys)
    count = f"{len(damaged)} or more" if len(damaged) == MOST_DAMAGED else str(len(damaged))
    message = (
        f"{count} objects have damaged bytes and cannot be read; store them again:"
        f" {', '.join(keys)}{f' and {more} more' if more else ''}"
    )
    found = [at for _, at in damaged]
    fault = Fault("BYTES_DAMAGED", message, min(found), max(found), len(damaged))
    return [fault_record(fault, "error")]


@ANSWERS.creates(PATH, "storage:CreateBucket", statuses=(404,))
async def create_bucket(
    data: JSONBody[CreateBucket], ctx: Context, needs: Needs[StorageNeeds]
) -> Reply[ResponseBody]:
    """Create a bucket. Its name is unique in the region; an account has at most 1,000.

    With `kms_key`, the caller needs `kms:UseKey` on that key.
    """
    account_id, region = account_of(ctx), ctx.settings.region
    check_bucket_name(data.name)
    check_tags(data.tags)
    if data.region not in (None, region):
        raise invalid_field("region", f"must be this region, {region}", "foreign_region")
    ctx.authorize(BUCKET.crn(region, account_id, data.name))
    key_id = await _key_to_bind(ctx, needs, data.kms_key)
    now = ctx.clock()
    bucket = Bucket(
        id=ctx.new_id(),
        account_id=account_id,
        region=region,
        name=data.name,
        kms_key_id=key_id,
        tags=data.tags,
        created_at=now,
        updated_at=now,
    )

    def create(tx: Connection) -> ResponseBody:
        ctx.details["bucket_id"] = bucket.id
        return _described(tx, needs, buckets.create_bucket(tx, bucket))

    return await ctx.commit(create, location=lambda _: f"{PATH}/{bucket.name}")


@ANSWERS.lists(PATH, "storage:ListBuckets", BucketQuery)
async def list_account_buckets(ctx: Context) -> ResponseBody:
    """List the account's buckets by name."""
    account_id, region, query = account_of(ctx), ctx.settings.region, ctx.query(BucketQuery)
    ctx.authorize(BUCKET.crn(region, account_id, "*"))
    of = account_id, region, [query.name or ""]
    found, meta = await read_page(
        ctx, query, bucket_rows.list_buckets, BUCKET_ROWS.count, *of, key=lambda each: each.name
    )
    ids = [each.id for each in found]
    held = await ctx.database.read(bucket_rows.usage_by_bucket, account_id, ids) if ids else {}
    nothing = bucket_rows.BucketUsage()
    return ANSWERS.many([bucket_record(each, held.get(each.id, nothing)) for each in found], meta)


@ANSWERS.gets(ONE, "storage:GetBucket")
async def get_bucket(
    bucket: FromPath[str], ctx: Context, needs: Needs[StorageNeeds]
) -> ResponseBody:
    """Return a bucket, with its key and its usage."""
    found = await buckets.authorized_bucket(ctx, bucket)
    return await ctx.database.read(_described, needs, found)


@ANSWERS.updates(ONE, "storage:UpdateBucket")
async def update_bucket(
    bucket: FromPath[str], data: JSONBody[UpdateBucket], ctx: Context, needs: Needs[StorageNeeds]
) -> Reply[ResponseBody]:
    """Change the tags of a bucket, or bind it to another KMS key (`kms:UseKey`).

    Passing a key, even the present one, starts a run after which this key opens all stored bytes;
    no bytes are written again. The bucket shows the run's progress.
    """
    found, run_id = await buckets.authorized_bucket(ctx, bucket), ctx.new_id()
    changes: dict[str, object] = {}
    if data.tags is not UNSET:
        check_tags(data.tags or {})
        changes["tags"] = data.tags or {}
    if data.kms_key is not UNSET:
        changes["kms_key_id"] = await _key_to_bind(ctx, needs, data.kms_key)
    now = ctx.clock()

    def change(tx: Connection) -> ResponseBody:
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

    return await ctx.commit(change)


@delete(ONE, status_code=204, opt={"action": "storage:DeleteBucket", "statuses": (409,)})
async def delete_bucket(bucket: FromPath[str], ctx: Context, needs: Needs[StorageNeeds]) -> None:
    """Delete a bucket, and abort its open multipart uploads. One with objects is refused (409)."""
    found = await buckets.authorized_bucket(ctx, bucket)
    await buckets.end_uploads(needs, found)

    def erase(tx: Connection) -> None:
        ctx.details["bucket_id"] = found.id
        buckets.BUCKETS.remove(tx, found, ctx.clock())

    await ctx.database.write(erase)


@get(_CORS, opt={"action": "storage:GetBucketCORS"})
async def get_bucket_cors(bucket: FromPath[str], ctx: Context) -> CorsRules:
    """Return the CORS rules of a bucket; 404 if it has none."""
    return cors_rules(buckets.get_cors(await buckets.authorized_bucket(ctx, bucket)))


@put(_CORS, status_code=200, opt={"action": "storage:PutBucketCORS"})
async def put_bucket_cors(
    bucket: FromPath[str], data: JSONBody[CorsRules], ctx: Context
) -> Reply[CorsRules]:
    """Replace the CORS rules of a bucket. They apply to web pages that use the S3 endpoint."""
    found = await buckets.authorized_bucket(ctx, bucket)
    rules = [CorsRule(**structs.asdict(each)) for each in data.cors_rules]

    def change(tx: Connection) -> Bucket:
        return buckets.put_cors(tx, found, rules, ctx.clock())

    return await ctx.commit(change, wrap=lambda _: cors_rules(rules))


@delete(_CORS, status_code=204, opt={"action": "storage:PutBucketCORS"})
async def delete_bucket_cors(bucket: FromPath[str], ctx: Context) -> None:
    """Delete the CORS rules of a bucket, if it has any."""
    found = await buckets.authorized_bucket(ctx, bucket)
    await ctx.database.write(buckets.put_cors, found, None, ctx.clock())


async def _key_to_bind(ctx: RequestContext, needs: StorageNeeds, value: str | None) -> str | None:
    """Return the id of the KMS key that a request names, if the caller may use it; or None."""
    if value is None:
        return None
    authorize = ctx.right_to(_USE_KEY)
    return (await ctx.database.read(needs.keys.resolve, account_of(ctx), value, authorize)).id


def _described(tx: Connection, needs: StorageNeeds, bucket: Bucket) -> ResponseBody:
    key = needs.keys.describe(tx, bucket.account_id, bucket.kms_key_id)
    record = bucket_record(
        bucket,
        bucket_rows.usage_of_bucket(tx, bucket.account_id, bucket.id),
        kms_key=key and reference_to(key),
        rewrap=rewrap_record(rewrapping.last_rewrap(tx, bucket.id)),
        faults=bucket_faults(
            bucket_rows.damaged_keys(tx, bucket.account_id, bucket.id, MOST_DAMAGED)
        ),
    )
    return ANSWERS.wrapped(record)
