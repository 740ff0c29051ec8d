"""Which application a request belongs to: the planes of a server, told apart by host and path.

The server itself needs to know, too: it counts the requests of each plane apart, and what it
refuses before an application sees it is refused in the form that the plane's clients read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

RefusalBody = Callable[[int, str, str], bytes]
"""Given a status, a message and the request's id, returns a body of JSON."""

Headers = Iterable[tuple[bytes, bytes]]


class Plane(NamedTuple):
    """A part of what a server serves; the requests that are its own go to one application."""

    name: str
    """Its label in the metrics."""
    refusal_body: RefusalBody
    """The body of what the server refuses by itself."""
    refusal_headers: bytes = b""
    """Header lines, each with its CRLF, of such a refusal."""
    prefixes: tuple[bytes, ...] = ()
    """First segments of its raw paths, such as ``b"/v2"``; none: every path."""
    hosts: tuple[bytes, ...] = ()
    """Its host names in lower case; one with a leading dot stands for all names that end so, and
    for what follows the dot. None: every host."""

    def owns_host(self, host: bytes) -> bool:
        """Return True if requests to `host`, in lower case and without a port, may be its own."""
        return any(
            host == name.lstrip(b".") or (name.startswith(b".") and host.endswith(name))
            for name in self.hosts
        )


class Planes:
    """The planes of a server, in the order in which they are asked; the last one owns the rest."""

    def __init__(self, *planes: Plane) -> None:
        if not planes or planes[-1].prefixes or planes[-1].hosts:
            raise ValueError("the last plane must own every request that no other does")
        self.planes: Final = planes
        self.names: Final = tuple(dict.fromkeys(plane.name for plane in planes))
        """Labels, each once."""
        self._counted_at = tuple(self.names.index(plane.name) for plane in planes)
        self._with_host = any(plane.hosts for plane in planes)
        self._before_last = tuple(
            (at, plane, frozenset(plane.prefixes), tuple(each + b"/" for each in plane.prefixes))
            for at, plane in enumerate(planes[:-1])
        )

    def find(self, path: bytes, headers: Headers = ()) -> int:
        """Return the number of the plane that owns a raw path under the ``Host`` in `headers`."""
        host = _host(headers) if self._with_host else b""
        for at, plane, exact, below in self._before_last:
            if (not exact or path in exact or path.startswith(below)) and (
                not plane.hosts or plane.owns_host(host)
            ):
                return at
        return len(self.planes) - 1

    def counted_at(self, plane: int) -> int:
        """Return the position in `names` of a plane's label."""
        return self._counted_at[plane]


def _plain_refusal(status: int, message: str, request_id: str) -> bytes:
    return msgspec.json.encode({"status": status, "message": message, "request_id": request_id})


PLAIN: Final = Planes(Plane("application", _plain_refusal))
"""One plane for an application of no family."""


def _host(headers: Headers) -> bytes:
    """Return the name in the one ``Host`` header, without its port; empty if there is none."""
    for name, value in headers:
        if name == b"host":
            host, colon, port = value.lower().rpartition(b":")
            return host if colon and (not port or port.isdigit()) else value.lower()
    return b""
