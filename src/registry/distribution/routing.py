"""Match the paths of ``/v2``, from the right, on the raw path.

Repository names have any number of parts, which may be words such as ``blobs`` or ``tags``. So the
endpoint is matched at the end of the path, and the rest is the name. The path is percent-decoded
once; an encoded slash is refused, since a proxy might split the path differently.

A client that uses this registry as a mirror requests ``library/alpine``, without an account:
containerd names the registry (``?ns=docker.io``), Docker does not. So the operator maps the names
of a registry to a prefix of an account, by ``ns`` or by ``Host`` (`settings.mirrors`). Any other
``ns`` is ignored: the server never connects to a host that a client names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from cloudcore.serving.asgi import Scope
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

    Raise `NameInvalid` if the path is not valid UTF-8, or has an encoded slash; `ExtensionUnknown`
    if it matches no endpoint.
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


_LONGEST_QUERY: Final = 4096


class Mirrors:
    """The prefixes below which other registries are mirrored here."""

    def __init__(self, prefixes: Mapping[str, str] | None = None) -> None:
        """Map ``ns`` or ``Host`` of a request to ``<account>/<prefix>``."""
        self._prefixes = dict(prefixes or {})

    def key(self, scope: Scope) -> str | None:
        """Return ``ns`` of a request if it is listed, else ``Host`` if that is listed, or None."""
        if not self._prefixes:
            return None
        query: bytes = scope["query_string"]
        if b"ns=" in query and len(query) <= _LONGEST_QUERY:
            named = [value for name, value in parse_qsl(query.decode("latin-1")) if name == "ns"]
            if len(named) == 1 and named[0] in self._prefixes:
                return named[0]
        host = requested_host(scope)
        return host if host in self._prefixes else None

    def local(self, key: str | None, text: str) -> str:
        """Return the local name of the repository that a mirror's client calls `text`.

        `key` is what the method `key` returned for the request. If that is None, or the name is
        already local, return `text`.
        """
        if key is None or not text:
            return text
        prefix = self._prefixes[key]
        return text if text.startswith(f"{prefix}/") else f"{prefix}/{text}"


def requested_host(scope: Scope) -> str:
    """Return the ``Host`` of a request in lower case, or ""."""
    host: bytes = next((value for name, value in scope["headers"] if name == b"host"), b"")
    return host.decode("latin-1").lower()


def realm_query(key: str | None) -> str:
    """Return ``?ns=KEY``, which names a mirror to the token endpoint; "" if `key` is None."""
    return "" if key is None else f"?ns={quote(key, safe='')}"
