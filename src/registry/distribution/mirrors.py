"""Names that clients ask for as those of another registry, and where they are here.

A client whose registry is configured as a mirror asks for ``library/alpine``, without an account:
containerd says whose name that is (``?ns=docker.io``), Docker does not. So the operator lists which
names of which registry are under which prefix of an account, by the ``ns`` or by the ``Host`` of a
request (`settings.mirrors`). Any other ``ns`` is ignored: what a client names is never dialled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote

from cloudcore.serving.body import Scope

_LONGEST_QUERY: Final = 4096


class Mirrors:
    """The prefixes under which the names of other registries are here."""

    def __init__(self, prefixes: Mapping[str, str] | None = None) -> None:
        """Map names by ``ns`` or ``Host`` to ``<account>/<prefix>``."""
        self._prefixes = dict(prefixes or {})

    def key(self, scope: Scope) -> str | None:
        """Return the listed ``ns`` of a request, else its ``Host`` if that is listed, or None."""
        if not self._prefixes:
            return None
        query: bytes = scope["query_string"]
        if b"ns=" in query and len(query) <= _LONGEST_QUERY:
            named = [value for name, value in parse_qsl(query.decode("latin-1")) if name == "ns"]
            if len(named) == 1 and named[0] in self._prefixes:
                return named[0]
        for name, value in scope["headers"]:
            if name == b"host":
                host: str = value.decode("latin-1").lower()
                return host if host in self._prefixes else None
        return None

    def local(self, key: str | None, text: str) -> str:
        """Return the name here of a repository that a request with this key names.

        A name that is given as it is here stays.
        """
        if key is None or not text:
            return text
        prefix = self._prefixes[key]
        return text if text.startswith(f"{prefix}/") else f"{prefix}/{text}"


def realm_query(key: str | None) -> str:
    """Return the query of the token endpoint by which it knows the names of a mirror again."""
    return "" if key is None else f"?ns={quote(key, safe='')}"
