"""List buckets, and the objects of a bucket."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from cloudcore import base64url
from cloudcore.storage import bucket_rows
from cloudcore.storage.bucket import BUCKET
from cloudcore.storage.object_rows import Listing, ObjectEntry, list_page
from cloudcore.storage.s3.answers import Answer, iso_time, quoted, tag, text, xml
from cloudcore.storage.s3.call import S3Call
from cloudcore.storage.s3.errors import S3Error

_MOST_BUCKETS_ASKED: Final = 10_000
_VERSION: Final = "null"
_LATEST: Final = (text("VersionId", _VERSION), text("IsLatest", True))  # noqa: FBT003

Encode = Callable[[str], str]


async def list_buckets(call: S3Call) -> Answer:
    """ListBuckets: the buckets of the account, sorted by name; all, or a page with a prefix."""
    call.ctx.authorize(call.bucket_crn("*"))
    fields = call.request.fields
    limit = call.number("max-buckets", 1, _MOST_BUCKETS_ASKED) or BUCKET.quota
    prefix, token = fields.get("prefix", ""), fields.get("continuation-token")
    after = "" if token is None else _read_token(token)
    found = await call.needs.database.read(
        bucket_rows.list_buckets, call.account_id, call.region, [""], after, BUCKET.quota
    )
    if fields.get("bucket-region", call.region) != call.region:
        found = []
    found = [each for each in found if each.name.startswith(prefix)]
    listed = [
        tag("Bucket", text("Name", each.name), text("CreationDate", iso_time(each.created_at)))
        for each in found[:limit]
    ]
    content = [owner("Owner", call.account_id), tag("Buckets", *listed)]
    if "prefix" in fields:
        content.append(text("Prefix", prefix))
    if len(found) > limit:
        content.append(text("ContinuationToken", base64url.encode(found[limit - 1].name.encode())))
    return xml("ListAllMyBucketsResult", content)


async def list_objects(call: S3Call) -> Answer:
    """ListObjects, version 1: `marker` is the key after which a page begins."""
    marker = call.request.fields.get("marker", "")
    limit, encode = call.limit("max-keys"), encoding(call)
    listing = await _page(call, marker, limit)
    content = [text("Marker", encode(marker))]
    if listing.next_after is not None and call.request.fields.get("delimiter"):
        content.append(text("NextMarker", encode(listing.next_after)))
    account_id = call.account_id
    return _answer(call, listing, limit, content, owner_id=account_id)


async def list_objects_v2(call: S3Call) -> Answer:
    """ListObjectsV2: an opaque token identifies the next page."""
    fields = call.request.fields
    limit, encode = call.limit("max-keys"), encoding(call)
    token, start_after = fields.get("continuation-token"), fields.get("start-after")
    after = (start_after or "") if token is None else _read_token(token)
    listing = await _page(call, after, limit)
    content = [text("KeyCount", len(listing.entries) + len(listing.prefixes))]
    if token is not None:
        content.append(text("ContinuationToken", token))
    if start_after is not None:
        content.append(text("StartAfter", encode(start_after)))
    if listing.next_after is not None:
        content.append(text("NextContinuationToken", base64url.encode(listing.next_after.encode())))
    owner_id = call.account_id if fields.get("fetch-owner") == "true" else None
    return _answer(call, listing, limit, content, owner_id=owner_id)


async def list_versions(call: S3Call) -> Answer:
    """ListObjectVersions: each object has one version, which is ``null`` and the latest.

    AWS does the same for an unversioned bucket; programs that empty a bucket call this operation.
    """
    fields = call.request.fields
    limit, encode = call.limit("max-keys"), encoding(call)
    marker = fields.get("key-marker", "")
    if fields.get("version-id-marker") and not marker:
        raise S3Error(
            "InvalidArgument", "A version-id marker cannot be specified without a key marker."
        )
    listing = await _page(call, marker, limit)
    content = [
        text("KeyMarker", encode(marker)),
        text("VersionIdMarker", fields.get("version-id-marker", "")),
    ]
    if listing.next_after is not None:
        content.append(text("NextKeyMarker", encode(listing.next_after)))
        if listing.entries and listing.entries[-1].key == listing.next_after:
            content.append(text("NextVersionIdMarker", _VERSION))
    return _answer(call, listing, limit, content, owner_id=call.account_id, versions=True)


def encoding(call: S3Call) -> Encode:
    """Return the function that encodes keys in a document: unchanged, or percent-encoded.

    Raise `S3Error` if the request names another encoding.
    """
    asked = call.request.fields.get("encoding-type")
    if asked is None:
        return lambda key: key
    if asked != "url":
        raise S3Error("InvalidArgument", "Invalid Encoding Method specified in Request")
    return lambda key: quote(key, safe="/")


def owner(name: str, account_id: str) -> str:
    """Return the XML element for an owner; its id and its name are the account id."""
    return tag(name, text("ID", account_id), text("DisplayName", account_id))


async def _page(call: S3Call, after: str, limit: int) -> Listing:
    bucket = await call.find_bucket()
    fields = call.request.fields
    prefix, delimiter = fields.get("prefix", ""), fields.get("delimiter", "")
    return await call.needs.database.read(list_page, bucket, prefix, delimiter, after, limit)


def _answer(
    call: S3Call,
    listing: Listing,
    limit: int,
    more: list[str],
    *,
    owner_id: str | None,
    versions: bool = False,
) -> Answer:
    fields, encode = call.request.fields, encoding(call)
    content = [
        text("Name", call.request.bucket),
        text("Prefix", encode(fields.get("prefix", ""))),
        text("MaxKeys", limit),
        text("IsTruncated", listing.next_after is not None),
        *more,
    ]
    if fields.get("delimiter"):
        content.append(text("Delimiter", encode(fields["delimiter"])))
    if "encoding-type" in fields:
        content.append(text("EncodingType", "url"))
    for entry in listing.entries:
        shown = _shown(entry, encode, owner_id)
        content.append(tag("Version", *_LATEST, *shown) if versions else tag("Contents", *shown))
    content += [tag("CommonPrefixes", text("Prefix", encode(each))) for each in listing.prefixes]
    return xml("ListVersionsResult" if versions else "ListBucketResult", content)


def _shown(entry: ObjectEntry, encode: Encode, owner_id: str | None) -> list[str]:
    content = [
        text("Key", encode(entry.key)),
        text("LastModified", iso_time(entry.created_at)),
        text("ETag", quoted(entry.etag)),
        text("Size", entry.size),
        text("StorageClass", entry.storage_class),
    ]
    if entry.checksum is not None:
        content.append(text("ChecksumAlgorithm", entry.checksum.algorithm))
        content.append(text("ChecksumType", entry.checksum.kind))
    if owner_id is not None:
        content.append(owner("Owner", owner_id))
    return content


def _read_token(token: str) -> str:
    try:
        after = b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        after = ""
    if not after or "\0" in after:  # no bucket name and no key contains NUL
        raise S3Error("InvalidArgument", "The continuation token provided is incorrect")
    return after
