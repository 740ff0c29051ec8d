"""Parse texts in settings: lists, origins, networks, addresses, hosts, mirrors, and URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from cloudcore.outbound.destinations import Allowed

PREFIX: Final = "ENTREPOT_"
PULL: Final = "pull"
"""The part ``/v2`` in the setting ``family_hosts``."""
AUTH: Final = "auth"
CONSOLE: Final = "console"
_ORIGIN: Final = re.compile(
    r"(?:http(?!://[^/]*:80\Z)|https(?!://[^/]*:443\Z))://"
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?"
)
_PREFIX: Final = re.compile(
    r"(?=.{2,32}/)[a-z0-9]+(?:-[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*){1,3}"
)
"""``<account>/<prefix>``: an account's handle, and one to three components."""


class SettingsError(Exception):
    """A setting is unknown, or its value is invalid."""


def allowed_destinations(name: str, text: str) -> Allowed:
    """Parse the origins and networks in the setting `name`.

    Raise `SettingsError` if an entry is neither an origin nor a network.
    """
    entries = listed(text)
    origins = ",".join(part for part in entries if "://" in part)
    try:
        networks = tuple(ip_network(part) for part in entries if "://" not in part)
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None
    return Allowed(f"{PREFIX}{name.upper()}", parse_origins(name, origins), networks)


def parse_origins(name: str, text: str) -> tuple[str, ...]:
    """Parse the origins in the setting `name`.

    Raise `SettingsError` if an entry is not an origin as browsers send it.
    """
    origins = listed(text)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise SettingsError(
                f"{name}: {origin!r} is no origin such as https://app.example.com: in "
                "lower case, without a path, a default port or *"
            )
    return origins


def address_and_port(text: str) -> tuple[str, int]:
    """Parse an IP address and a port (by default 53, DNS); raise ValueError for other text."""
    try:
        return str(ip_address(text.strip("[]"))), 53
    except ValueError:
        host, _, port = text.rpartition(":")
        return str(ip_address(host.strip("[]"))), int(port)


def listed(text: str) -> tuple[str, ...]:
    """Split a comma-separated list; omit empty entries."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_mirrors(text: str) -> Mapping[str, str]:
    """Map each registry or host in the setting ``mirrors`` to its ``account/prefix``.

    Raise `SettingsError` if an entry is not HOST=ACCOUNT/PREFIX, or a host has two prefixes.
    """
    found: dict[str, str] = {}
    for entry in listed(text):
        host, _, prefix = entry.partition("=")
        if not HOST.fullmatch(host) or not _PREFIX.fullmatch(prefix):
            raise SettingsError(
                f"mirrors: {entry!r} is no HOST=ACCOUNT/PREFIX such as docker.io=acme/hub"
            )
        if found.setdefault(host.lower(), prefix) != prefix:
            raise SettingsError(f"mirrors: {host} is listed twice")
    return found


def parse_family_hosts(text: str) -> Mapping[str, Sequence[str]]:
    """Map each part in the setting ``family_hosts`` to its hosts, in lower case.

    Raise `SettingsError` if an entry is not NAME=HOST.
    """
    found: dict[str, list[str]] = {}
    for entry in listed(text):
        part, _, host = entry.partition("=")
        if not part or not HOST.fullmatch(host):
            raise SettingsError(
                f"family_hosts: {entry!r} is no NAME=HOST such as pull=cr.example.com: a host has"
                " no path, and the scheme is that of public_url"
            )
        found.setdefault(part, []).append(host.lower())
    return found


HOST: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_PORT: Final = re.compile(r":[0-9]*\Z")


def public_url_problem(url: str) -> str:
    """Return the problem of a public URL and a correction; an empty string if it is valid.

    A public URL is ``http://`` or ``https://`` and a host, without a path: container clients look
    for ``/v2`` only at the root of a host.
    """
    scheme, separator, rest = url.rpartition("://")
    host, _, path = rest.partition("/")
    person, at, host = host.rpartition("@")
    is_host = HOST.fullmatch(host) is not None
    advice = f"set https://{host}" if is_host else "set for example https://registry.example.com"
    if at:  # the message omits both: it is printed, and may be logged
        named = "a user and a password" if ":" in person else "a user"
        return f"it has {named} before the host, and is told to all clients; {advice}"
    if separator and scheme not in ("http", "https"):
        return f"{url!r} begins with neither https:// nor http://; {advice}"
    if not is_host:
        return f"{url!r} names no host; {advice}"
    if not separator:
        return f"{url!r} has no scheme; {advice}"
    if path:
        return f"{url!r} has a path, but clients look for /v2 on a host; set {scheme}://{host}"
    return ""


def without_port(host: str) -> str:
    """Return a host in lower case, without its port."""
    return _PORT.sub("", host.lower())


def is_every_address(host: str) -> bool:
    """Return True if listening on `host` means listening on every address of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return host in ("", "0")  # `bind` treats these as 0.0.0.0


def ports_clash(host: str, other: str) -> bool:
    """Return True if two hosts share an address, so that both cannot listen on one port."""
    host, other = ("127.0.0.1" if each == "localhost" else each for each in (host, other))
    if host == other:
        return True
    return any(
        is_every_address(every) and (":" in every or ":" not in one)  # `::` includes IPv4
        for every, one in ((host, other), (other, host))
    )
