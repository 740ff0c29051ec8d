"""Create, find and delete buckets; CORS rules, and the responses that depend on them."""

from __future__ import annotations

import re
from typing import Final

from cloudcore.storage import buckets, cors
from cloudcore.storage.bucket import Bucket, check_bucket_name
from cloudcore.storage.bucket_rows import find_public_bucket
from cloudcore.storage.buckets import get_cors
from cloudcore.storage.errors import BucketAlreadyOwnedByYou
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.s3 import documents
from cloudcore.storage.s3.answers import Answer, empty, escape, tag, text, xml
from cloudcore.storage.s3.bucket_configurations import checked_tags
from cloudcore.storage.s3.call import S3Call
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.object_headers import acl_refusal, check_supported
from cloudcore.storage.s3.payloads import read_document
from cloudcore.storage.s3.requests import S3Request

MAX_LISTED: Final = 100
MAX_ID: Final = 255
_PATTERN: Final = re.compile(r"[!-)+-~]*(?:\*[!-)+-~]*)?")
_EXPOSED: Final = re.compile(r"[!#$%&'+.^_`|~0-9A-Za-z-]{1,128}")
_NO_REGION: Final = ("", "us-east-1")
"""Location constraints that mean the region of the endpoint."""
_OWNERSHIP: Final = "BucketOwnerEnforced"
"""All objects belong to the bucket's owner, and access control lists are not accepted."""


async def create_bucket(call: S3Call) -> Answer:
    """CreateBucket; in ``us-east-1``, 200 even if the account already has the bucket, as in AWS."""
    name = call.request.bucket
    call.ctx.authorize(call.bucket_crn(name))
    check_bucket_name(name)
    check_supported(call.request.headers, call.account_id)
    if call.request.headers.get("x-amz-bucket-object-lock-enabled", "false").lower() != "false":
        raise S3Error("NotImplemented", "Objects cannot be locked here.")
    if call.request.headers.get("x-amz-object-ownership", _OWNERSHIP) != _OWNERSHIP:
        raise acl_refusal()
    location, tags = documents.read_bucket(await read_document(call))
    if location not in (*_NO_REGION, call.region) and not call.any_region:
        raise S3Error(
            "IllegalLocationConstraintException",
            f"The {location} location constraint is incompatible with this endpoint.",
        )
    bucket = Bucket(
        id=call.ctx.new_id(),
        account_id=call.account_id,
        region=call.region,
        name=name,
        tags=checked_tags(tags),
        created_at=call.now,
        updated_at=call.now,
    )
    try:
        await call.change(buckets.create_bucket, bucket, bucket_id=bucket.id)
    except BucketAlreadyOwnedByYou:
        if call.region != _NO_REGION[1]:
            raise
    return empty(200, [("location", f"/{name}")])


async def head_bucket(call: S3Call) -> Answer:
    """HeadBucket: 200 if the caller may see the bucket."""
    return empty(200, [("x-amz-bucket-region", call.region)])


async def delete_bucket(call: S3Call) -> Answer:
    """DeleteBucket: refused if the bucket has objects; its open uploads are aborted."""
    await buckets.end_uploads(call.needs, call.bucket)
    await call.change(buckets.BUCKETS.remove, call.bucket, call.now, bucket_id=call.bucket.id)
    return empty(204)


async def get_bucket_location(call: S3Call) -> Answer:
    """GetBucketLocation: the region."""
    return xml("LocationConstraint", [escape(call.region)])


async def get_bucket_cors(call: S3Call) -> Answer:
    """GetBucketCors: the rules."""
    rules = buckets.get_cors(call.bucket)
    return xml("CORSConfiguration", [_rule(rule) for rule in rules])


async def put_bucket_cors(call: S3Call) -> Answer:
    """PutBucketCors: replace the rules."""
    rules = documents.read_cors(await read_document(call))
    for rule in rules:
        check_rule(rule)
    await call.ctx.database.write(buckets.put_cors, call.bucket, rules, call.now)
    return empty()


async def delete_bucket_cors(call: S3Call) -> Answer:
    """DeleteBucketCors: 204, even if there are no rules."""
    await call.ctx.database.write(buckets.put_cors, call.bucket, None, call.now)
    return empty(204)


def check_rule(rule: cors.CorsRule) -> None:
    """Raise `S3Error` (MalformedXML or InvalidRequest) for a rule that `/v1` cannot represent.

    See `cors.CorsRuleRecord`.
    """
    if not 1 <= len(rule.allowed_origins) <= MAX_LISTED or not rule.allowed_methods:
        raise S3Error("MalformedXML", f"A CORS rule has 1 to {MAX_LISTED} origins, and a method.")
    if max(len(rule.allowed_headers), len(rule.expose_headers)) > MAX_LISTED:
        raise S3Error("MalformedXML", f"A CORS rule lists at most {MAX_LISTED} headers.")
    for method in rule.allowed_methods:
        if method not in cors.METHODS:
            raise S3Error(
                "InvalidRequest", f"Found unsupported HTTP method in CORS config: {method}"
            )
    for pattern, longest in (
        *((each, 256) for each in rule.allowed_origins),
        *((each, 128) for each in rule.allowed_headers),
    ):
        if not _PATTERN.fullmatch(pattern) or not 1 <= len(pattern) <= longest:
            raise S3Error("InvalidRequest", "A pattern of a CORS rule is ASCII with at most one *.")
    if not all(_EXPOSED.fullmatch(name) for name in rule.expose_headers):
        raise S3Error("InvalidRequest", "ExposeHeader must be a header's name, without wildcard.")
    if (rule.max_age_seconds or 0) > cors.MAX_AGE_SECONDS or len(rule.id or "") > MAX_ID:
        raise S3Error("InvalidRequest", "MaxAgeSeconds or ID of a CORS rule is too long.")


def _rule(rule: cors.CorsRule) -> str:
    content = [] if rule.id is None else [text("ID", rule.id)]
    content += [text("AllowedOrigin", each) for each in rule.allowed_origins]
    content += [text("AllowedMethod", each) for each in rule.allowed_methods]
    content += [text("AllowedHeader", each) for each in rule.allowed_headers]
    content += [text("ExposeHeader", each) for each in rule.expose_headers]
    if rule.max_age_seconds is not None:
        content.append(text("MaxAgeSeconds", rule.max_age_seconds))
    return tag("CORSRule", *content)


async def answer_preflight(needs: StorageNeeds, region: str, request: S3Request) -> Answer:
    """Return the response to a browser's preflight request.

    Raise `S3Error` if no rule of the bucket allows the request, or there is no such bucket.
    """
    origin = request.headers.get("origin")
    method = request.headers.get("access-control-request-method")
    if origin is None or method is None:
        raise S3Error(
            "InvalidRequest",
            "Insufficient information. Origin and Access-Control-Request-Method are needed.",
        )
    wanted = cors.requested_headers(request.headers.get("access-control-request-headers", ""))
    rule = cors.find_rule(await _rules(needs, region, request.bucket), origin, method, wanted)
    if rule is None:
        raise S3Error("AccessForbidden", "CORSResponse: This CORS request is not allowed.")
    return empty(200, cors.preflight_headers(rule, origin, wanted))


async def with_cors(needs: StorageNeeds, region: str, request: S3Request, answer: Answer) -> Answer:
    """Add the CORS headers for the requesting page to a response, if a CORS rule allows that."""
    origin = request.headers.get("origin")
    if origin is None or request.method == "OPTIONS":
        return answer
    rule = cors.find_rule(await _rules(needs, region, request.bucket), origin, request.method)
    if rule is None:
        return answer
    return answer._replace(fields=[*answer.fields, *cors.answer_headers(rule, origin)])


async def _rules(needs: StorageNeeds, region: str, name: str) -> list[cors.CorsRule]:
    bucket = await needs.database.read(find_public_bucket, region, name) if name else None
    return [] if bucket is None or bucket.cors is None else get_cors(bucket)
