"""Pull, push and delete manifests, by tag or digest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.serving.asgi import BodyTooLarge, read_body
from cloudcore.serving.bodies.budget import BODIES, BodyHold
from registry.distribution.kept_answers import kept_manifest
from registry.distribution.lists import stale_headers
from registry.distribution.request import (
    DataPlaneRequest,
    etag,
    is_not_modified,
    require_match,
    tag_precondition,
)
from registry.distribution.response import Headers, Response, empty
from registry.errors import ManifestTooLarge, ManifestUnknown, SizeInvalid, TagInvalid, TooManyTags
from registry.oci.digest import Digest
from registry.oci.manifest import MAX_BYTES
from registry.oci.reference import parse_reference, parse_tag
from registry.services.context import ServiceContext
from registry.services.images import manifests
from registry.services.images.manifests import MAX_TAGS, ManifestPut
from registry.services.pull_through.manifests import pull_manifest
from registry.services.tags import pointers as tags

MAX_WARNINGS: Final = 20


async def get_manifest(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-3: return the stored bytes and media type; ``Accept`` is ignored."""
    reference = _existing(request)
    found = await pull_manifest(ctx, request.name, reference)
    digest = reference if isinstance(reference, Digest) else found.pushed_digest
    require_match(request, digest)
    headers = [etag(digest), (b"docker-content-digest", digest.encode())]
    if not request.is_head and request.grant.counts_pulls:
        ctx.pulls.note(found.id)  # before a 304 too: the client uses the image
    if found.stale_since is not None:
        headers += stale_headers(ctx.clock(), found.stale_since)
    keep = kept_manifest(ctx, request, reference, found)
    if is_not_modified(request, digest):
        return Response(304, headers, keep=keep)
    headers += [
        (b"content-type", found.media_type.encode()),
        (b"content-length", b"%d" % len(found.body)),
    ]
    return Response(200, headers, found.body, keep=keep)


async def put_manifest(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-7a, end-7b: store a manifest by tag, or by digest with up to `MAX_TAGS` ``?tag=``."""
    reference = parse_reference(request.argument)
    expected = reference if isinstance(reference, Digest) else None
    names = (str(reference),) if expected is None else _tags(request)
    precondition = tag_precondition(request)
    with BODIES.hold() as hold:
        put = ManifestPut(
            body=await _read(request, hold),
            content_type=request.header(b"content-type"),
            expected=expected,
            tags=names,
            precondition=precondition,
        )
        result = await manifests.push_manifest(ctx, request.name, request.grant, put)
    headers: Headers = [
        (b"location", f"/v2/{request.name}/manifests/{result.digest}".encode()),
        (b"docker-content-digest", result.digest.encode()),
    ]
    if result.subject is not None:
        headers.append((b"oci-subject", result.subject.encode()))
    if expected is not None and names:
        headers.append((b"oci-tag", ", ".join(names).encode()))
    if result.wrong_sizes:
        headers += _warnings(result.wrong_sizes)
    return empty(201, *headers)


async def delete_manifest(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-9: delete a tag alone, or a manifest by digest with all its tags."""
    reference = _existing(request)
    change = request.change(ctx)
    if isinstance(reference, Digest):
        require_match(request, reference)
        await ctx.database.write(manifests.delete_manifest, request.name, reference, change)
    else:
        precondition = tag_precondition(request)
        await ctx.database.write(tags.delete_tag, request.name, reference, precondition, change)
    return empty(202)


def _warnings(wrong_sizes: Sequence[str]) -> Headers:
    """Return warnings about wrong sizes: one for each of the first digests, then the total.

    Clients and proxies limit the size and the number of headers.
    """
    words = [
        f"descriptor size differs from the stored {digest}" for digest in wrong_sizes[:MAX_WARNINGS]
    ]
    if len(wrong_sizes) > MAX_WARNINGS:
        words.append(f"descriptor size differs from the stored of {len(wrong_sizes)} blobs in all")
    return [(b"warning", f'299 - "{each}"'.encode()) for each in words]


def _existing(request: DataPlaneRequest) -> str | Digest:
    """Return the reference in the path; raise ManifestUnknown unless it is a digest or a tag."""
    try:
        return parse_reference(request.argument)
    except TagInvalid as error:
        raise ManifestUnknown(error.message, **error.params) from None


def _tags(request: DataPlaneRequest) -> tuple[str, ...]:
    named = request.query.all("tag")
    if len(named) > MAX_TAGS:
        raise TooManyTags(f"one request sets at most {MAX_TAGS} tags", limit=MAX_TAGS)
    return tuple(dict.fromkeys(map(parse_tag, named)))


async def _read(request: DataPlaneRequest, hold: BodyHold) -> bytes:
    """Read the body of a manifest push.

    Raise `ManifestTooLarge` if the body is over the limit (before reading, if its declared length
    is); `SizeInvalid` if it ended early.
    """
    declared = request.content_length
    if (declared or 0) > MAX_BYTES:
        raise _too_large()
    try:
        body = await read_body(hold.metered(request.receive, declared), MAX_BYTES)
    except BodyTooLarge:
        raise _too_large() from None
    if body is None:
        raise SizeInvalid("the body ended before its declared length")
    return body


def _too_large() -> ManifestTooLarge:
    return ManifestTooLarge(f"a manifest has at most {MAX_BYTES} bytes", limit=MAX_BYTES)
