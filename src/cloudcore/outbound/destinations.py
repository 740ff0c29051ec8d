"""Which URLs may be asked: users name them, and the install stands in a network that trusts it.

Only https, and only addresses of the public internet. An operator lists what may be asked besides:
an origin may have any address and may be plain HTTP; hosts in a network are asked over https. One
purpose, webhooks, takes plain HTTP too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

from cloudcore.outbound.addresses import Address, Network, is_public, unwrapped

MAX_URL: Final = 8000

_PORTS: Final = {"https": 443, "http": 80}
_URL: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:[/?][!-~]*)?)",
    re.IGNORECASE,
)
_NUMERIC_LABEL: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_REFUSED_PORTS: Final = frozenset(
    # Their services may obey an HTTP request, or trust everybody who can connect.
    {2049, 2375, 2379, 2380, 3306, 3389, 5432, 5900, 6000, 6379, 6667, 9200, 10250, 11211, 27017}
)
_LAST_SYSTEM_PORT: Final = 1023


class NotAllowed(ValueError):
    """A URL may not be asked; the message says why."""


class Allowed(NamedTuple):
    """What an operator lets be asked besides the public internet."""

    setting: str
    """The variable that lists it, for messages."""
    origins: Sequence[str] = ()
    """As `origin_of` writes them."""
    networks: Sequence[Network] = ()
    takes_plain_http: bool = False
    """Whatever may be asked over https may be asked over http too."""


class Destination(NamedTuple):
    """Where a URL is asked, before the name is resolved."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, as they are sent."""
    is_listed: bool
    """True if the operator has listed the origin: it may have any address."""

    @property
    def origin(self) -> str:
        """Return the origin as browsers write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def authority(self) -> str:
        """Return the value of the ``Host`` header."""
        return self.origin.partition("://")[2]


def origin_of(url: str) -> str:
    """Return the origin of a URL as browsers write it: in lower case, without a default port.

    Raises:
        NotAllowed: it is no URL of HTTP.

    """
    return _parsed(url).origin


def check_url(url: str, allowed: Allowed) -> Destination:
    """Return the destination of a URL that may be asked, before its name is resolved.

    Raises:
        NotAllowed: with the reason as a sentence.

    """
    found = _parsed(url)
    if found.origin in allowed.origins:
        return found._replace(is_listed=True)
    if found.scheme != "https" and not allowed.takes_plain_http:
        raise NotAllowed("it is not https")
    if found.port != _PORTS[found.scheme] and (
        found.port <= _LAST_SYSTEM_PORT or found.port in _REFUSED_PORTS
    ):
        raise NotAllowed(f"port {found.port} is not one of HTTP")
    literal = literal_address(found.host)
    if literal is not None:
        check_addresses(found, [literal], allowed)
    elif found.host == "localhost" or found.host.endswith(".localhost"):
        raise _not_public(found.host, allowed)
    return found


def check_addresses(
    destination: Destination, addresses: Sequence[Address], allowed: Allowed
) -> None:
    """Check all addresses of a destination.

    Raises:
        NotAllowed: there is none, or one of them is not public and not in a listed network.

    """
    if not addresses:
        raise NotAllowed(f"{destination.host} has no address")
    if not destination.is_listed and not all(_may_be_dialled(each, allowed) for each in addresses):
        raise _not_public(destination.host, allowed)


def literal_address(host: str) -> Address | None:
    """Return the address that a host is, or None if it is a name."""
    try:
        return IPv6Address(host) if ":" in host else IPv4Address(host)
    except AddressValueError:
        return None


def _may_be_dialled(address: Address, allowed: Allowed) -> bool:
    if is_public(address):
        return True
    plain = unwrapped(address)
    return any(plain in network for network in allowed.networks)


def _not_public(host: str, allowed: Allowed) -> NotAllowed:
    return NotAllowed(
        f"{host} has an address that is not public; the operator of this install can list it in "
        f"{allowed.setting}"
    )


def _parsed(url: str) -> Destination:
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise NotAllowed(f"a URL has at most {MAX_URL} printable ASCII characters, and no space")
    if "#" in url or "\\" in url or "@" in url.partition("://")[2].partition("/")[0]:
        raise NotAllowed("it has a user name, a password, a fragment or a backslash")
    found = _URL.fullmatch(url)
    if found is None:
        scheme = "http" if url.lower().startswith("http:") else "https"
        raise NotAllowed(f"write it as {scheme}://HOST/…, without a dot after HOST")
    scheme, host = found["scheme"].lower(), found["host"].lower()
    port = int(found["port"] or _PORTS[scheme])
    if not 0 < port <= 0xFFFF:
        raise NotAllowed(f"port {port} is out of range")
    if host.startswith("["):
        host = _canonical_ipv6(host[1:-1])
    elif ".." in host or _is_odd_number(host):
        raise NotAllowed(f"{host} is no name of a host, and no address in its usual form")
    target = found["target"]
    target = target if target.startswith("/") else f"/{target}"
    return Destination(scheme, host, port, target, is_listed=False)


def _canonical_ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except AddressValueError:
        raise NotAllowed(f"{text} is no IPv6 address") from None


def _is_odd_number(host: str) -> bool:
    """Return True for ``127.1``, ``2130706433``, ``0x7f.1``: resolvers read them as addresses."""
    is_number = _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]) is not None
    return is_number and literal_address(host) is None
