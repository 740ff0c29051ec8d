"""The configurations of a bucket: those that it has, and fixed answers for those that it lacks.

A put of the present configuration is accepted and changes nothing, so that tools which describe
buckets find them as described; a put of anything else is not implemented.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from cloudcore.errors import InvalidInput
from cloudcore.resource_names import check_tags
from cloudcore.storage import buckets
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.s3 import documents
from cloudcore.storage.s3.answers import Answer, empty, tag, tagging, text, xml
from cloudcore.storage.s3.call import KMS, SEALED, S3Call
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.object_calls import private_acl
from cloudcore.storage.s3.payloads import check_acl, read_document

Handler = Callable[[S3Call], Awaitable[Answer]]

_PUBLIC_ACCESS: Final = (
    "BlockPublicAcls",
    "IgnorePublicAcls",
    "BlockPublicPolicy",
    "RestrictPublicBuckets",
)
_ABSENT: Final = {
    "GetBucketLifecycle": "NoSuchLifecycleConfiguration",
    "GetBucketPolicy": "NoSuchBucketPolicy",
    "GetBucketPolicyStatus": "NoSuchBucketPolicy",
    "GetBucketReplication": "ReplicationConfigurationNotFoundError",
    "GetBucketWebsite": "NoSuchWebsiteConfiguration",
    "GetObjectLockConfiguration": "ObjectLockConfigurationNotFoundError",
    # Nothing is public here, and nobody can change that.
    "DeletePublicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
    "PutObjectLockConfiguration": "InvalidBucketState",
}
"""Configurations that no bucket has here, with the error code for each."""
_LISTS: Final = {
    "GetBucketAnalytics": "ListBucketAnalyticsConfigurationResult",
    "GetBucketIntelligentTiering": "ListBucketIntelligentTieringConfigurationsOutput",
    "GetBucketInventory": "ListInventoryConfigurationsResult",
    "GetBucketMetrics": "ListMetricsConfigurationsResult",
}
"""Lists of configurations, of which no bucket has any."""
_SAME: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "BucketAccelerate": ("AccelerateConfiguration", {}),
    "BucketLogging": ("BucketLoggingStatus", {}),
    "BucketNotification": ("NotificationConfiguration", {}),
    "BucketOwnershipControls": (
        "OwnershipControls",
        {"Rule/ObjectOwnership": "BucketOwnerEnforced"},
    ),
    "BucketRequestPayment": ("RequestPaymentConfiguration", {"Payer": "BucketOwner"}),
    "BucketVersioning": ("VersioningConfiguration", {}),
    "PublicAccessBlock": (
        "PublicAccessBlockConfiguration",
        dict.fromkeys(_PUBLIC_ACCESS, "true"),
    ),
}
"""Configurations of every bucket here, with documents: texts by paths below the root."""
_NOTHING_LEFT: Final = (
    "DeleteBucketLifecycle",
    "DeleteBucketPolicy",
    "DeleteBucketReplication",
    "DeleteBucketWebsite",
)
"""Deletions of what no bucket has."""


async def get_bucket_acl(call: S3Call) -> Answer:
    """GetBucketAcl: the owner has full control; policies decide about others."""
    return private_acl((await call.find_bucket()).account_id)


async def put_bucket_acl(call: S3Call) -> Answer:
    """PutBucketAcl: accept the list that gives the owner full control, which changes nothing."""
    await call.find_bucket()
    await check_acl(call)
    return empty()


async def get_bucket_tagging(call: S3Call) -> Answer:
    """GetBucketTagging: the tags of ``/v1``."""
    tags = (await call.find_bucket()).tags
    if not tags:
        raise S3Error("NoSuchTagSet", "The TagSet does not exist")
    return tagging(tags)


async def put_bucket_tagging(call: S3Call) -> Answer:
    """PutBucketTagging: replace the tags."""
    bucket = await call.find_bucket()
    return await _save_tags(call, bucket, documents.read_tags(await read_document(call)))


async def delete_bucket_tagging(call: S3Call) -> Answer:
    """DeleteBucketTagging: delete all tags."""
    return await _save_tags(call, await call.find_bucket(), {})


def checked_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Return the tags of a bucket.

    Raise `S3Error` (InvalidTag: there are too many, or one is malformed).
    """
    try:
        check_tags(tags)
    except InvalidInput as error:
        raise S3Error("InvalidTag", error.message) from None
    return tags


async def _save_tags(call: S3Call, bucket: Bucket, tags: Mapping[str, str]) -> Answer:
    changes = {"tags": checked_tags(tags)}
    await call.ctx.database.write(buckets.BUCKETS.update, bucket, changes, call.now)
    return empty(204)


async def get_bucket_encryption(call: S3Call) -> Answer:
    """GetBucketEncryption: the encryption of new objects, as on ``/v1``."""
    bucket = await call.find_bucket()
    if not call.needs.bytes.seals:
        raise S3Error(
            "ServerSideEncryptionConfigurationNotFoundError",
            "The server side encryption configuration was not found",
        )
    default = [text("SSEAlgorithm", SEALED)]
    if bucket.kms_key_id is not None:
        of = bucket.account_id, bucket.kms_key_id
        key = await call.needs.database.read(call.needs.keys.describe, *of)
        named = bucket.kms_key_id if key is None else key.crn or key.id
        default = [text("SSEAlgorithm", KMS), text("KMSMasterKeyID", named)]
    rule = tag("ApplyServerSideEncryptionByDefault", *default)
    enabled = text("BucketKeyEnabled", False)  # noqa: FBT003 - a text of XML
    return xml("ServerSideEncryptionConfiguration", [tag("Rule", rule, enabled)])


async def put_bucket_encryption(call: S3Call) -> Answer:
    """PutBucketEncryption: accept the present one: AES-256 under a managed key."""
    bucket = await call.find_bucket()
    name = "ServerSideEncryptionConfiguration"
    asked = documents.read_texts(await read_document(call), name)
    algorithm = asked.pop("Rule/ApplyServerSideEncryptionByDefault/SSEAlgorithm", None)
    asked.pop("Rule/BucketKeyEnabled", None)
    is_so = call.needs.bytes.seals and bucket.kms_key_id is None and algorithm == SEALED
    if asked or not is_so:
        raise _other()
    return empty()


async def delete_bucket_encryption(call: S3Call) -> Answer:
    """DeleteBucketEncryption: 204 if the bucket has the default, to which AWS goes back."""
    if (await call.find_bucket()).kms_key_id is not None:
        raise _other()
    return empty(204)


def _refuse(operation: str) -> Handler:
    """Return the operation that answers that a configuration is absent."""

    async def refuse(call: S3Call) -> Answer:
        await call.find_bucket()
        raise S3Error(_ABSENT[operation], "The bucket has no such configuration.")

    return refuse


def _list(operation: str) -> Handler:
    """Return the operation that lists configurations, or shows the one of an id."""

    async def list_none(call: S3Call) -> Answer:
        await call.find_bucket()
        if "id" in call.request.fields:
            raise S3Error("NoSuchConfiguration", "The specified configuration does not exist.")
        return xml(_LISTS[operation], [text("IsTruncated", False)])  # noqa: FBT003

    return list_none


def _describe(configuration: str) -> Handler:
    """Return the operation that shows a configuration that is the same for all buckets."""
    name, texts = _SAME[configuration]
    content = []
    for path, value in texts.items():
        *outer, last = path.split("/")
        part = text(last, value)
        for each in reversed(outer):
            part = tag(each, part)
        content.append(part)

    async def describe(call: S3Call) -> Answer:
        await call.find_bucket()
        return xml(name, content)

    return describe


def _keep(configuration: str) -> Handler:
    """Return the operation that accepts the document of such a configuration."""
    name, texts = _SAME[configuration]

    async def keep(call: S3Call) -> Answer:
        await call.find_bucket()
        if documents.read_texts(await read_document(call), name) != texts:
            raise _other()
        return empty()

    return keep


async def _delete_nothing(call: S3Call) -> Answer:
    """Answer the deletion of a configuration that no bucket has."""
    await call.find_bucket()
    return empty(204)


def _other() -> S3Error:
    return S3Error("NotImplemented", "A bucket cannot have another configuration than it has here.")


DESCRIPTIONS: Final[Mapping[str, Handler]] = (
    {name: _refuse(name) for name in _ABSENT}
    | {name: _list(name) for name in _LISTS}
    | {f"Get{name}": _describe(name) for name in _SAME}
    | {f"Put{name}": _keep(name) for name in _SAME}
    | dict.fromkeys(_NOTHING_LEFT, _delete_nothing)
)
"""Operations that tell of a bucket what is so for all of them, and change nothing."""
