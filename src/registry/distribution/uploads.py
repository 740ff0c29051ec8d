"""Start, continue, finish and cancel uploads; mount a blob instead of uploading it."""

from __future__ import annotations

from cloudcore.resource_names import is_canonical_uuid
from registry.distribution.byteranges import parse_content_range
from registry.distribution.errors import render
from registry.distribution.request import DataPlaneRequest
from registry.distribution.response import Headers, Response, empty
from registry.errors import DigestInvalid, NameInvalid, UploadOutOfOrder, UploadUnknown
from registry.oci.digest import Digest, parse_algorithm
from registry.oci.reference import Name, parse_name
from registry.services.blobs import uploads
from registry.services.blobs.mounting import mount_blob
from registry.services.blobs.upload_bodies import Chunk, Span
from registry.services.blobs.upload_sessions import get_session
from registry.services.context import ServiceContext
from registry.services.repositories.names import refuse_mirrored


async def post_upload(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-4a, end-4b, end-4c, end-11: mount a blob, push one, or else start an upload."""
    algorithm = request.query.one("digest-algorithm", DigestInvalid)
    if algorithm is not None:
        parse_algorithm(algorithm)
    whole = _digest(request, "digest") if request.query.has("digest") else None
    mounts = request.query.has("mount")
    span = _span(request) if mounts or whole is not None else None
    if span is not None and span.first != 0:
        raise UploadOutOfOrder(0)
    if mounts:
        mounted = _digest(request, "mount")
        if await _mount(ctx, request, mounted):
            return _created(request.name, mounted)
    if whole is not None:
        await uploads.push_blob(ctx, request.name, request.grant, whole, _chunk(request, span))
        return _created(request.name, whole)
    upload_id = await uploads.start_upload(ctx, request.name, request.grant, algorithm)
    return empty(202, *_session(request.name, upload_id, 0))


async def patch_upload(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-5: append the body; its ``Content-Range``, if any, must begin at the received offset."""
    try:
        upload_id = _upload_id(request)
        chunk = _chunk(request, _span(request))
        received = await uploads.append_chunk(ctx, request.name, upload_id, chunk)
    except (UploadOutOfOrder, UploadUnknown) as error:
        return await _refused(ctx, request, error)
    return empty(202, *_session(request.name, upload_id, received))


async def put_upload(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-6: append the body, if any, and make the upload a blob with the given digest."""
    try:
        upload_id = _upload_id(request)
        expected = _digest(request, "digest")
        chunk = _chunk(request, _span(request))
        await uploads.finish_upload(ctx, request.name, upload_id, expected, chunk)
    except (UploadOutOfOrder, UploadUnknown) as error:
        return await _refused(ctx, request, error)
    return _created(request.name, expected)


async def get_upload(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-13: return the range that a session has received."""
    upload_id = _upload_id(request)
    received = await _received(ctx, request, upload_id)
    return Response(204, _session(request.name, upload_id, received))


async def delete_upload(ctx: ServiceContext, request: DataPlaneRequest) -> Response:
    """end-14: cancel a session."""
    await uploads.cancel_upload(ctx, request.name, _upload_id(request))
    return Response(204, [])


async def _mount(ctx: ServiceContext, request: DataPlaneRequest, digest: Digest) -> bool:
    """Mount a blob; return False if it cannot be mounted, or the source is malformed (end-11)."""
    source: Name | None = None
    if request.query.has("from"):
        try:
            source = parse_name(request.query.one("from") or "")
        except NameInvalid:
            return False
    return await mount_blob(ctx, request.name, digest, source, request.grant) is not None


async def _refused(
    ctx: ServiceContext, request: DataPlaneRequest, error: UploadOutOfOrder | UploadUnknown
) -> Response:
    """Return a 416 with the received range, which saves the client a request for it.

    If the upload is unknown, raise RepositoryMirrored if the name accepts no pushes, else `error`.
    """
    if isinstance(error, UploadUnknown):
        await ctx.database.read(refuse_mirrored, request.name)
        raise error
    received = await _received(ctx, request, request.argument)
    answer = render(error)
    answer.headers.extend(_session(request.name, request.argument, received))
    return answer


async def _received(ctx: ServiceContext, request: DataPlaneRequest, upload_id: str) -> int:
    now = ctx.clock()
    session = await ctx.database.read(get_session, ctx, request.name, upload_id, now)
    return session.upload.received_bytes


def _span(request: DataPlaneRequest) -> Span | None:
    return parse_content_range(request.header(b"content-range"), request.content_length)


def _chunk(request: DataPlaneRequest, span: Span | None = None) -> Chunk:
    length = request.content_length
    return Chunk(request.body, length, span, request.read_small_body, request.give_back)


def _upload_id(request: DataPlaneRequest) -> str:
    if not is_canonical_uuid(request.argument):
        raise UploadUnknown("there is no such upload here, or it has ended")
    return request.argument


def _digest(request: DataPlaneRequest, parameter: str) -> Digest:
    """Return the digest in a query parameter; raise DigestInvalid if there is not exactly one."""
    return Digest.parse(request.query.one(parameter, DigestInvalid) or "")


def _session(name: Name, upload_id: str, received_bytes: int) -> Headers:
    """Return the headers with a session's location and range; ``0-0`` also for no bytes."""
    return [
        (b"location", f"/v2/{name}/blobs/uploads/{upload_id}".encode()),
        (b"range", b"0-%d" % max(0, received_bytes - 1)),
        (b"docker-upload-uuid", upload_id.encode()),
    ]


def _created(name: Name, digest: Digest) -> Response:
    return empty(
        201,
        (b"location", f"/v2/{name}/blobs/{digest}".encode()),
        (b"docker-content-digest", digest.encode()),
    )
