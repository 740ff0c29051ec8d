"""Entity tags and the conditions on them (RFC 9110 §13). Ours are ``"<digest>"``, always strong."""

from __future__ import annotations

import re
from typing import Final

from registry.distribution.request import Request
from registry.services.tags import Precondition

_ENTITY_TAG: Final = re.compile(r'(W/)?"([^"]*)"')


def etag(digest: str) -> tuple[bytes, bytes]:
    """Return the ``ETag`` header of content."""
    return (b"etag", b'"%b"' % digest.encode())


def is_not_modified(request: Request, digest: str) -> bool:
    """Say whether ``If-None-Match`` names what the client would get, so that 304 is the answer."""
    header = request.list_header(b"if-none-match")
    return header is not None and not _named(header).isdisjoint({digest, "*"})


def range_still_holds(request: Request, digest: str) -> bool:
    """Say whether a ``Range`` applies: there is no ``If-Range``, or it names this content."""
    header = request.header(b"if-range")
    return header is None or header.strip() == f'"{digest}"'


def tag_precondition(request: Request) -> Precondition | None:
    """Return what must hold for a tag before a PUT moves it."""
    match = request.list_header(b"if-match")
    none_match = request.list_header(b"if-none-match")
    if match is None and none_match is None:
        return None
    return Precondition(
        None if match is None else _named(match, strongly=True),
        None if none_match is None else _named(none_match),
    )


def _named(header: str, *, strongly: bool = False) -> frozenset[str]:
    """Return the digests a list of entity tags names; ``*`` stands for itself.

    Compared `strongly`, as ``If-Match`` is, weak tags name nothing (RFC 9110 §13.1.1).
    """
    if header.strip() == "*":
        return frozenset({"*"})
    tags = _ENTITY_TAG.findall(header)
    return frozenset(tag for weak, tag in tags if tag != "*" and not (strongly and weak))
