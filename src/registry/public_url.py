"""Check the base URL under which clients reach the registry."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

HOST: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_PORT: Final = re.compile(r":[0-9]*\Z")
_EXAMPLE: Final = "https://registry.example.com"


def public_url_problem(url: str) -> str:
    """Return what is wrong with a public URL and what to write instead, or an empty string.

    It is ``http://`` or ``https://`` and a host: container clients look for ``/v2`` at the root of
    a host, and know no other place.
    """
    scheme, separator, rest = url.rpartition("://")
    host, _, path = rest.partition("/")
    person, at, host = host.rpartition("@")
    is_host = HOST.fullmatch(host) is not None
    if at:  # neither is repeated: this is printed, and may be logged
        named = "a user and a password" if ":" in person else "a user"
        return (
            f"it has {named} before the host, and is told to all clients; {_advice(host, is_host)}"
        )
    if separator and scheme not in ("http", "https"):
        return f"{url!r} begins with neither https:// nor http://; {_advice(host, is_host)}"
    if not is_host:
        return f"{url!r} names no host; {_advice(host, is_host)}"
    if not separator:
        return f"{url!r} has no scheme; {_advice(host, is_host)}"
    if path:
        return f"{url!r} has a path, but clients look for /v2 on a host; set {scheme}://{host}"
    return ""


def without_port(host: str) -> str:
    """Return a host in lower case, without its port."""
    return _PORT.sub("", host.lower())


def is_every_address(host: str) -> bool:
    """Return True if a server that listens on `host` listens on every address of its machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return host in ("", "0")  # as `bind` reads them


def share_a_port(host: str, other: str) -> bool:
    """Return True if a machine cannot listen on the same port of both hosts."""
    host, other = ("127.0.0.1" if each == "localhost" else each for each in (host, other))
    if host == other:
        return True
    return any(
        is_every_address(every) and (":" in every or ":" not in one)  # :: is every address of IPv4
        for every, one in ((host, other), (other, host))
    )


def _advice(host: str, is_host: bool) -> str:  # noqa: FBT001
    return f"set https://{host}" if is_host else f"set for example {_EXAMPLE}"
