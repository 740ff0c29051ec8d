"""The configurations of a bucket: the supported ones, and fixed answers for all others.

A PUT of the present configuration is accepted and changes nothing, so that tools which describe
buckets declaratively find no difference; a PUT of any other configuration is not implemented.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from cloudcore.errors import InvalidInput
from cloudcore.resource_names import check_tags
from cloudcore.storage import buckets
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
    ("GET", "lifecycle"): "NoSuchLifecycleConfiguration",
    ("GET", "policy"): "NoSuchBucketPolicy",
    ("GET", "policyStatus"): "NoSuchBucketPolicy",
    ("GET", "replication"): "ReplicationConfigurationNotFoundError",
    ("GET", "website"): "NoSuchWebsiteConfiguration",
    ("GET", "object-lock"): "ObjectLockConfigurationNotFoundError",
    # Nothing is public here, and nobody can change that.
    ("DELETE", "publicAccessBlock"): "NoSuchPublicAccessBlockConfiguration",
    ("PUT", "object-lock"): "InvalidBucketState",
}
"""Configurations that no bucket has here, with the error code for each."""
_LISTS: Final = {
    "analytics": "ListBucketAnalyticsConfigurationResult",
    "intelligent-tiering": "ListBucketIntelligentTieringConfigurationsOutput",
    "inventory": "ListInventoryConfigurationsResult",
    "metrics": "ListMetricsConfigurationsResult",
}
"""Lists of configurations, which are empty for every bucket."""
_SAME: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "accelerate": ("AccelerateConfiguration", {}),
    "logging": ("BucketLoggingStatus", {}),
    "notification": ("NotificationConfiguration", {}),
    "ownershipControls": (
        "OwnershipControls",
        {"Rule/ObjectOwnership": "BucketOwnerEnforced"},
    ),
    "requestPayment": ("RequestPaymentConfiguration", {"Payer": "BucketOwner"}),
    "versioning": ("VersioningConfiguration", {}),
    "publicAccessBlock": (
        "PublicAccessBlockConfiguration",
        dict.fromkeys(_PUBLIC_ACCESS, "true"),
    ),
}
"""Configurations that every bucket has here: root element, and texts by path below the root."""
_NOTHING_LEFT: Final = ("lifecycle", "policy", "replication", "website")
"""Configurations that no bucket has, so that their deletion succeeds and changes nothing."""


async def get_bucket_acl(call: S3Call) -> Answer:
    """GetBucketAcl: the owner has full control; policies decide about others."""
    return private_acl(call.bucket.account_id)


async def put_bucket_acl(call: S3Call) -> Answer:
    """PutBucketAcl: accept only full control for the owner, which changes nothing."""
    await check_acl(call)
    return empty()


async def get_bucket_tagging(call: S3Call) -> Answer:
    """GetBucketTagging: the same tags as on ``/v1``."""
    tags = call.bucket.tags
    if not tags:
        raise S3Error("NoSuchTagSet", "The TagSet does not exist")
    return tagging(tags)


async def put_bucket_tagging(call: S3Call) -> Answer:
    """PutBucketTagging: replace the tags."""
    return await _save_tags(call, documents.read_tags(await read_document(call)))


async def delete_bucket_tagging(call: S3Call) -> Answer:
    """DeleteBucketTagging: delete all tags."""
    return await _save_tags(call, {})


def checked_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Check and return the tags for a bucket.

    Raise `S3Error` (InvalidTag) if there are too many, or one is malformed.
    """
    try:
        check_tags(tags)
    except InvalidInput as error:
        raise S3Error("InvalidTag", error.message) from None
    return tags


async def _save_tags(call: S3Call, tags: Mapping[str, str]) -> Answer:
    changes = {"tags": checked_tags(tags)}
    await call.ctx.database.write(buckets.BUCKETS.update, call.bucket, changes, call.now)
    return empty(204)


async def get_bucket_encryption(call: S3Call) -> Answer:
    """GetBucketEncryption: the encryption of new objects, as on ``/v1``."""
    if not call.needs.bytes.seals:
        raise S3Error(
            "ServerSideEncryptionConfigurationNotFoundError",
            "The server side encryption configuration was not found",
        )
    default = [text("SSEAlgorithm", SEALED)]
    if call.bucket.kms_key_id is not None:
        of = call.bucket.account_id, call.bucket.kms_key_id
        key = await call.needs.database.read(call.needs.keys.describe, *of)
        named = call.bucket.kms_key_id if key is None else key.crn or key.id
        default = [text("SSEAlgorithm", KMS), text("KMSMasterKeyID", named)]
    rule = tag("ApplyServerSideEncryptionByDefault", *default)
    enabled = text("BucketKeyEnabled", False)  # noqa: FBT003 - a text of XML
    return xml("ServerSideEncryptionConfiguration", [tag("Rule", rule, enabled)])


async def put_bucket_encryption(call: S3Call) -> Answer:
    """PutBucketEncryption: accept only the present encryption, AES-256 under a managed key."""
    name = "ServerSideEncryptionConfiguration"
    asked = documents.read_texts(await read_document(call), name)
    algorithm = asked.pop("Rule/ApplyServerSideEncryptionByDefault/SSEAlgorithm", None)
    asked.pop("Rule/BucketKeyEnabled", None)
    is_so = call.needs.bytes.seals and call.bucket.kms_key_id is None and algorithm == SEALED
    if asked or not is_so:
        raise _other()
    return empty()


async def delete_bucket_encryption(call: S3Call) -> Answer:
    """DeleteBucketEncryption: 204 if the bucket has the default, to which AWS would reset it."""
    if call.bucket.kms_key_id is not None:
        raise _other()
    return empty(204)


def _refuse(code: str) -> Handler:
    """Return a handler that raises the error `code`: the configuration is absent."""

    async def refuse(_call: S3Call) -> Answer:
        raise S3Error(code, "The bucket has no such configuration.")

    return refuse


def _list(name: str) -> Handler:
    """Return a handler for an empty list of configurations; a request for one by id is refused."""

    async def list_none(call: S3Call) -> Answer:
        if "id" in call.request.fields:
            raise S3Error("NoSuchConfiguration", "The specified configuration does not exist.")
        return xml(name, [text("IsTruncated", False)])  # noqa: FBT003

    return list_none


def _describe(name: str, texts: Mapping[str, str]) -> Handler:
    """Return a handler that answers with a configuration that is the same for all buckets."""
    content = []
    for path, value in texts.items():
        *outer, last = path.split("/")
        part = text(last, value)
        for each in reversed(outer):
            part = tag(each, part)
        content.append(part)

    async def describe(_call: S3Call) -> Answer:
        return xml(name, content)

    return describe


def _keep(name: str, texts: Mapping[str, str]) -> Handler:
    """Return a handler that accepts a PUT of exactly this fixed configuration."""

    async def keep(call: S3Call) -> Answer:
        if documents.read_texts(await read_document(call), name) != texts:
            raise _other()
        return empty()

    return keep


async def _delete_nothing(_call: S3Call) -> Answer:
    return empty(204)


def _other() -> S3Error:
    return S3Error("NotImplemented", "A bucket cannot have another configuration than it has here.")


DESCRIPTIONS: Final[Mapping[tuple[str, str], Handler]] = (
    {of: _refuse(code) for of, code in _ABSENT.items()}
    | {("GET", each): _list(name) for each, name in _LISTS.items()}
    | {("GET", each): _describe(*same) for each, same in _SAME.items()}
    | {("PUT", each): _keep(*same) for each, same in _SAME.items()}
    | {("DELETE", each): _delete_nothing for each in _NOTHING_LEFT}
)
"""Handlers that give the same answer for all buckets, and change nothing; by (method, selecting
query parameter)."""
