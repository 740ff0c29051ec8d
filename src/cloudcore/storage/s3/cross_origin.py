"""Apply the CORS rules of buckets: answer preflights, and mark the answers to web pages."""

from __future__ import annotations

from cloudcore.storage.bucket_rows import find_public_bucket
from cloudcore.storage.buckets import get_cors
from cloudcore.storage.cors import (
    CorsRule,
    answer_headers,
    find_rule,
    preflight_headers,
    requested_headers,
)
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.s3.answers import Answer, empty
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.requests import S3Request


async def answer_preflight(needs: StorageNeeds, region: str, request: S3Request) -> Answer:
    """Return the answer to a browser that asks, before it signs, if it may send a request.

    Raises:
        S3Error: no rule of the bucket allows it, or there is no such bucket.

    """
    origin = request.headers.get("origin")
    method = request.headers.get("access-control-request-method")
    if origin is None or method is None:
        raise S3Error(
            "InvalidRequest",
            "Insufficient information. Origin and Access-Control-Request-Method are needed.",
        )
    wanted = requested_headers(request.headers.get("access-control-request-headers", ""))
    rule = find_rule(await _rules(needs, region, request.bucket), origin, method, wanted)
    if rule is None:
        raise S3Error("AccessForbidden", "CORSResponse: This CORS request is not allowed.")
    return empty(200, preflight_headers(rule, origin, wanted))


async def with_cors(needs: StorageNeeds, region: str, request: S3Request, answer: Answer) -> Answer:
    """Return an answer that the page which asked may read, if a rule of the bucket allows it."""
    origin = request.headers.get("origin")
    if origin is None or request.method == "OPTIONS":
        return answer
    rule = find_rule(await _rules(needs, region, request.bucket), origin, request.method)
    if rule is None:
        return answer
    return answer._replace(fields=[*answer.fields, *answer_headers(rule, origin)])


async def _rules(needs: StorageNeeds, region: str, name: str) -> list[CorsRule]:
    bucket = await needs.database.read(find_public_bucket, region, name) if name else None
    return [] if bucket is None or bucket.cors is None else get_cors(bucket)
