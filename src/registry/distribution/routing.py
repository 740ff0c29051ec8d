"""Match the paths of ``/v2``, from the right, on the raw path.

Repository names have any number of parts, which may be words such as ``blobs`` or ``tags``. So the
endpoint is matched at the end of the path, and the rest is the name. The path is percent-decoded
once; an encoded slash is refused, since a proxy might split the path differently.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from registry.errors import ExtensionUnknown, NameInvalid


class Endpoint(Enum):
    """The endpoint of a path."""

    BASE = auto()
    CATALOG = auto()
    TOKEN = auto()
    TAGS = auto()
    UPLOADS = auto()
    UPLOAD = auto()
    BLOB = auto()
    MANIFEST = auto()
    REFERRERS = auto()


class Match(NamedTuple):
    """A parsed path; `argument` is the digest, reference or upload id, not yet checked."""

    endpoint: Endpoint
    name: str
    argument: str


_WITH_ARGUMENT: Final = {
    "blobs": Endpoint.BLOB,
    "manifests": Endpoint.MANIFEST,
    "referrers": Endpoint.REFERRERS,
}


def match_path(raw_path: bytes) -> Match:
    """Parse the path of a request to ``/v2``.

    Raises:
        NameInvalid: it is not valid UTF-8, or has an encoded slash.
        ExtensionUnknown: it matches no endpoint.

    """
    path = _decoded(raw_path)
    if path in ("/v2", "/v2/"):
        return Match(Endpoint.BASE, "", "")
    rest = path.removeprefix("/v2/")
    if rest == "_catalog":
        return Match(Endpoint.CATALOG, "", "")
    if rest == "token":
        return Match(Endpoint.TOKEN, "", "")
    if rest.startswith("_"):
        raise ExtensionUnknown("no extension of this name is offered here")
    head, _, argument = rest.rpartition("/")
    name, _, noun = head.rpartition("/")
    endpoint = _WITH_ARGUMENT.get(noun)
    if endpoint is not None and argument and argument != "uploads":
        return Match(endpoint, name, argument)
    if rest.endswith("/tags/list"):
        return Match(Endpoint.TAGS, rest[:-10], "")
    if rest.endswith(("/blobs/uploads", "/blobs/uploads/")):
        return Match(Endpoint.UPLOADS, rest.rstrip("/")[:-14], "")
    if head.endswith("/blobs/uploads"):
        return Match(Endpoint.UPLOAD, head[:-14], argument)
    if endpoint is None or not argument:
        raise ExtensionUnknown("the path is no endpoint of the distribution API")
    return Match(endpoint, name, argument)


def _decoded(raw_path: bytes) -> str:
    raw_path = raw_path.partition(b"?")[0]
    if b"%" in raw_path:
        if b"%2f" in raw_path.lower():
            raise NameInvalid("a slash of the path may not be percent-encoded")
        raw_path = unquote_to_bytes(raw_path)
    try:
        return raw_path.decode()
    except UnicodeDecodeError:
        raise NameInvalid("the path is not valid UTF-8") from None
