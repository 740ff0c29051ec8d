"""The planes of a server: each request belongs to one of them, by host and path.

Each plane has its own application. The server counts requests per plane, and its own error
responses have the plane's error format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

RefusalBody = Callable[[int, str, str], bytes]
"""Given a status, a message and the request's id, returns a body."""

Headers = Iterable[tuple[bytes, bytes]]


class Plane(NamedTuple):
    """The hosts and paths of one application."""

    name: str
    """Label in the metrics."""
    refusal_body: RefusalBody
    """Makes the body of an error response of the server itself."""
    refusal_headers: bytes = b""
    """Header lines of these error responses, each with its CRLF."""
    prefixes: tuple[bytes, ...] = ()
    """First segments of its raw paths, such as ``b"/v2"``; empty for every path."""
    port: int | None = None
    """A local port at which every request belongs to the plane, whatever its path; or None."""
    hosts: tuple[bytes, ...] = ()
    """Host names in lower case. One with a leading dot is a domain and all its subdomains, except
    those that another plane names. Empty for every host."""
    refusal_type: bytes = b"application/json"
    """Media type of the body that `refusal_body` makes."""
    is_empty: bool = False
    """True if nothing is served at its paths."""
    logged_parameters: frozenset[bytes] = frozenset()
    """Query parameters whose values the access log may show; any other could hold a secret."""

    def owns_host(self, host: bytes) -> bool:
        """Return True if `hosts` contains `host`, which is in lower case and without a port."""
        return any(
            host == name.lstrip(b".") or (name.startswith(b".") and host.endswith(name))
            for name in self.hosts
        )


_Candidate = tuple[int, Plane | None, frozenset[bytes], tuple[bytes, ...]]
"""(number of a plane, the plane if its hosts must be checked, its prefixes, the same with a
slash)."""


class Planes:
    """The planes of a server. The first match owns a request; the last plane matches all."""

    def __init__(self, *planes: Plane) -> None:
        last = planes[-1] if planes else None
        if last is None or last.prefixes or last.hosts or last.port is not None:
            raise ValueError("the last plane must own every request that no other does")
        self.planes: Final = planes
        self.names: Final = tuple(dict.fromkeys(plane.name for plane in planes))
        """Labels of the planes, without duplicates."""
        self.counted_at: Final = tuple(self.names.index(plane.name) for plane in planes)
        """For each plane, the index in `names` of the label under which it is counted."""
        self._with_host = any(plane.hosts for plane in planes)
        self._by_port = {
            plane.port: at for at, plane in enumerate(planes) if plane.port is not None
        }
        self._before_last = tuple(
            (
                at,
                plane if plane.hosts else None,
                frozenset(plane.prefixes),
                tuple(each + b"/" for each in plane.prefixes),
            )
            for at, plane in enumerate(planes[:-1])
            if plane.port is None
        )
        names = {host for plane in planes for host in plane.hosts if not host.startswith(b".")}
        self._by_host = {
            name: tuple(
                (at, None, exact, below)
                for at, plane, exact, below in self._before_last
                if plane is None or name in plane.hosts
            )
            for name in names
        }

    def find(self, path: bytes, headers: Headers = (), port: int | None = None) -> int:
        """Return the index of the plane that owns a raw path under the ``Host`` in `headers`.

        `port` is the local port at which the request arrived.
        """
        if port in self._by_port:
            return self._by_port[port]
        host = b""
        planes: Sequence[_Candidate] = self._before_last
        if self._with_host:
            host = host_of(headers)
            if (own := self._by_host.get(host)) is not None:
                planes = own
                if b"%" in path:  # routes match paths decoded: no spelling leads past a plane
                    path = unquote_to_bytes(path)
        for at, plane, exact, below in planes:
            if (not exact or path in exact or path.startswith(below)) and (
                plane is None or plane.owns_host(host)
            ):
                return at
        return len(self.planes) - 1


def _plain_refusal(status: int, message: str, request_id: str) -> bytes:
    return msgspec.json.encode({"status": status, "message": message, "request_id": request_id})


PLAIN: Final = Planes(Plane("application", _plain_refusal))
"""One plane for all requests."""


def host_of(headers: Headers) -> bytes:
    """Return the ``Host`` in lower case without its port, or an empty string.

    A final dot, which denotes the root of the DNS, is removed: both forms are one name.
    """
    for name, value in headers:
        if name == b"host":
            host, colon, port = value.lower().rpartition(b":")
            found = host if colon and (not port or port.isdigit()) else value.lower()
            return found.removesuffix(b".")
    return b""
