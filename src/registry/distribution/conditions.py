"""Entity tags and the conditions on them (RFC 9110 §13). Ours are ``"<digest>"``, always strong."""

from __future__ import annotations

from cloudcore.errors import PreconditionFailed
from registry.distribution.request import DataPlaneRequest
from registry.services.tags import preconditions
from registry.services.tags.pointers import Precondition
from registry.services.tags.preconditions import digests_named


def etag(digest: str) -> tuple[bytes, bytes]:
    """Return the ``ETag`` header of content."""
    return (b"etag", b'"%b"' % digest.encode())


def require_match(request: DataPlaneRequest, digest: str) -> None:
    """Check ``If-Match`` before every other condition (RFC 9110 §13.2.2).

    Raises:
        PreconditionFailed: it does not name this content, compared strongly (§13.1.1).

    """
    header = request.list_header(b"if-match")
    if header is None:
        return
    if digests_named(header, strongly=True).isdisjoint({digest, "*"}):
        raise PreconditionFailed(
            "If-Match names other content (entity tags are digests in quotes)", digest=str(digest)
        )


def is_not_modified(request: DataPlaneRequest, digest: str) -> bool:
    """Say whether ``If-None-Match`` names what the client would get, so that 304 is the answer."""
    header = request.list_header(b"if-none-match")
    return header is not None and not digests_named(header).isdisjoint({digest, "*"})


def range_still_holds(request: DataPlaneRequest, digest: str) -> bool:
    """Say whether a ``Range`` applies: there is no ``If-Range``, or it names this content."""
    header = request.header(b"if-range")
    return header is None or header.strip() == f'"{digest}"'


def tag_precondition(request: DataPlaneRequest) -> Precondition | None:
    """Return what must hold for a tag before a PUT moves it."""
    return preconditions.tag_precondition(
        request.list_header(b"if-match"), request.list_header(b"if-none-match")
    )
