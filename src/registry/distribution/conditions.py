"""Entity tags, ``"<digest>"`` and always strong, and the conditions on them (RFC 9110 §13)."""

from __future__ import annotations

from cloudcore.errors import PreconditionFailed
from cloudcore.revisions import tags_named
from registry.distribution.request import DataPlaneRequest
from registry.services.tags import details
from registry.services.tags.pointers import Precondition


def etag(digest: str) -> tuple[bytes, bytes]:
    """Return the ``ETag`` header for content with this digest."""
    return (b"etag", b'"%b"' % digest.encode())


def require_match(request: DataPlaneRequest, digest: str) -> None:
    """Check ``If-Match`` before every other condition (RFC 9110 §13.2.2).

    Raises:
        PreconditionFailed: the header does not contain this digest, compared strongly (§13.1.1).

    """
    header = request.list_header(b"if-match")
    if header is None:
        return
    if tags_named(header, strongly=True).isdisjoint({digest, "*"}):
        raise PreconditionFailed(
            "If-Match names other content (entity tags are digests in quotes)", digest=str(digest)
        )


def is_not_modified(request: DataPlaneRequest, digest: str) -> bool:
    """Return True if ``If-None-Match`` contains this digest, so that the answer is 304."""
    header = request.list_header(b"if-none-match")
    return header is not None and not tags_named(header).isdisjoint({digest, "*"})


def range_still_holds(request: DataPlaneRequest, digest: str) -> bool:
    """Return True if ``Range`` applies: without ``If-Range``, or if that is this digest."""
    header = request.header(b"if-range")
    return header is None or header.strip() == f'"{digest}"'


def tag_precondition(request: DataPlaneRequest) -> Precondition | None:
    """Return the condition of a request on a tag, or None; see `details.tag_precondition`."""
    return details.tag_precondition(
        request.list_header(b"if-match"), request.list_header(b"if-none-match")
    )
