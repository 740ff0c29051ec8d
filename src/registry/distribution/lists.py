"""List a repository's tags, an account's repositories, and a manifest's referrers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cloudcore.clock import MICROSECONDS
from registry.distribution.kept_answers import kept_list
from registry.distribution.request import DataPlaneRequest, next_link, page_cursor, page_size
from registry.distribution.response import Headers, Response, json_headers, json_response
from registry.errors import NameUnknown
from registry.metadata.images.manifests import Referrer
from registry.oci.media_types import OCI_INDEX
from registry.services.context import ServiceContext
from registry.services.images.referrers import (
    ReferrerPage,
    list_described_referrers,
    read_referrers_state,
)
from registry.services.pull_through.lists import (
    UpstreamReferrers,
    list_cached_tags,
    list_upstream_referrers,
)
from registry.services.repositories.names import NamePage, list_catalog
from registry.services.tags.pointers import list_tag_names, read_revision

CUT: Final = (b"warning", b'299 - "the upstream has more tags than are listed"')


def stale_headers(now: int, told_at: int | None) -> Headers:
    """Return the headers `Age` and `Warning` for a stale answer of an upstream (RFC 9111).

    `told_at` is when the upstream answered, or None if unknown. Times are in microseconds.
    """
    headers = [(b"warning", b'299 - "upstream unreachable"')]
    if told_at is not None:
        headers.append((b"age", b"%d" % max(0, (now - told_at) // MICROSECONDS)))
    return headers


MAX_PAGE: Final = 1000
MAX_REFERRERS: Final = 200


async def get_tags(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-8a, end-8b: list tags in byte order, paged by ``n`` and ``last``."""
    limit = page_size(request.query, MAX_PAGE)
    after = page_cursor(request.query)
    keep = await kept_list(ctx, request, read_revision)
    here: NamePage | NameUnknown
    try:
        here = await ctx.database.read(list_tag_names, request.name, after, limit)
    except NameUnknown as missing:
        if ctx.upstream is None:
            raise
        here = missing
    else:
        if not here.is_cached or ctx.upstream is None:
            return _tags(request, here, limit)._replace(keep=keep)
    # Not reusable: once a rule is created or enabled, an upstream may list more.
    told = await list_cached_tags(ctx, request.name, after, limit, here)
    answer = _tags(request, told.page, limit)
    if told.is_stale:
        answer.headers.extend(stale_headers(ctx.clock(), told.checked_at))
    if not told.is_whole:
        answer.headers.append(CUT)
    return answer


def _tags(request: DataPlaneRequest, page: NamePage, limit: int) -> Response:
    body = msgspec.json.encode({"name": str(request.name), "tags": page.names})
    return json_response(body, *_next(f"/v2/{request.name}/tags/list", page, limit))


async def get_catalog(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """List the repositories of the caller's own account; not in OCI, but tools expect it."""
    limit = page_size(request.query, MAX_PAGE)
    after = page_cursor(request.query)
    listing = await request.grant.listing()
    page = await list_catalog(ctx, listing.account, after, limit, listing.may_describe)
    body = msgspec.json.encode({"repositories": page.names})
    return json_response(body, *_next("/v2/_catalog", page, limit))


async def get_referrers(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-12a, end-12b: return an index of the referrers of a digest, empty if there are none."""
    subject = request.digest
    artifact_type = request.query.one("artifactType") or ""
    after = page_cursor(request.query)
    keep = await kept_list(ctx, request, read_referrers_state, subject)
    page = ReferrerPage([], has_more=False)
    if artifact_type.isprintable():
        page = await ctx.database.read(
            list_described_referrers, request.name, subject, artifact_type, after, MAX_REFERRERS
        )
    if page.may_be_upstream and ctx.upstream is not None:
        keep = None  # once a rule is created or enabled, an upstream may list more
        told = await list_upstream_referrers(ctx, request.name, subject)
        if told is not None:
            return _upstream_referrers(ctx, told, artifact_type)
    answer = _index([_descriptor(*each) for each in page.referrers], artifact_type)
    if page.has_more:
        last = page.referrers[-1].referrer.id
        filters = {"artifactType": artifact_type} if artifact_type else {}
        answer.headers.append(
            next_link(f"/v2/{request.name}/referrers/{subject}", **filters, last=last)
        )
    return answer._replace(keep=keep)


def _upstream_referrers(
    ctx: ServiceContext, told: UpstreamReferrers, artifact_type: str
) -> Response:
    """Return the upstream's referrers in one page, at most as large as a manifest may be."""
    found = [each for each in told.listed if artifact_type in ("", each.artifact_type)]
    answer = _index(found, artifact_type)
    if told.stale_since is not None:
        answer.headers.extend(stale_headers(ctx.clock(), told.stale_since))
    return answer


def _index(descriptors: Sequence[object], artifact_type: str) -> Response:
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": descriptors}
    body = msgspec.json.encode(index)
    headers = [(b"content-type", OCI_INDEX.encode()), *json_headers(body)[1:]]
    if artifact_type:
        headers.append((b"oci-filters-applied", b"artifactType"))
    return Response(200, headers, body)


def _descriptor(referrer: Referrer, annotations: str) -> dict[str, Any]:
    descriptor: dict[str, Any] = {
        "mediaType": referrer.media_type,
        "digest": referrer.digest,
        "size": referrer.size,
    }
    if referrer.artifact_type:
        descriptor["artifactType"] = referrer.artifact_type
    if annotations != "{}":
        descriptor["annotations"] = msgspec.Raw(annotations.encode())
    return descriptor


def _next(path: str, page: NamePage, limit: int) -> list[tuple[bytes, bytes]]:
    if not page.has_more or not page.names:
        return []
    return [next_link(path, n=limit, last=page.names[-1])]
