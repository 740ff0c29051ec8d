"""Check addresses and URLs that users name, since hosts may trust requests from the install.

Only https is allowed, and only addresses of the public internet. An operator can list exceptions: a
listed origin may have any address and may be plain HTTP; hosts in a listed network are called over
https. For webhooks alone, plain HTTP is allowed too.

`ipaddress.is_global` is no check for public addresses: in Python 3.11 it is true for multicast,
for ``64:ff9b::7f00:1`` (127.0.0.1 behind NAT64), ``2002:7f00:1::`` (6to4), ``::127.0.0.1``,
``fec0::1``, ``3fff::1`` and ``192.88.99.1``. So the list is our own.

Source: IANA's special-purpose addresses of IPv4 (RFC 6890) and IPv6.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, NamedTuple

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; also metadata services of some clouds
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local; metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
"""All unicast addresses that IANA assigns. Outside are loopback, private, link-local, multicast,
every form of ``::a.b.c.d``, and local NAT64 (``64:ff9b:1::/48``)."""
_NOT_PUBLIC_V6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: stands for an IPv4 address
        "3ffe::/16",  # 6bone, given back
        "3fff::/20",  # documentation
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LAST_32_BITS: Final = 0xFFFF_FFFF


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds (mapped, NAT64), or else `address`."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & _LAST_32_BITS)
    return address


def is_public(address: Address) -> bool:
    """Return True if an address, or the IPv4 address in it, is on the public internet.

    6to4, Teredo and addresses with a zone are always refused.
    """
    address = unwrapped(address)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address.scope_id is not None or address not in _GLOBAL_V6:
        return False
    return not any(address in network for network in _NOT_PUBLIC_V6)


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
    """A URL may not be called; the message has the reason."""


class Allowed(NamedTuple):
    """The destinations that an operator allows besides the public internet."""

    setting: str
    """Name of the variable that lists the destinations, for messages."""
    origins: Sequence[str] = ()
    """In the form of `origin_of`."""
    networks: Sequence[Network] = ()
    takes_plain_http: bool = False
    """True if plain HTTP is allowed wherever https is."""


class Destination(NamedTuple):
    """The destination of a URL, before its name is resolved."""

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
        """Return the origin in the form that browsers use."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def authority(self) -> str:
        """Return the value of the ``Host`` header."""
        return self.origin.partition("://")[2]


def origin_of(url: str) -> str:
    """Return the origin of a URL as browsers write it: in lower case, without a default port.

    Raise `NotAllowed` if it is not an HTTP URL.
    """
    return _parsed(url).origin


def check_url(url: str, allowed: Allowed) -> Destination:
    """Return the destination of a URL that may be called, before its name is resolved.

    Raises:
        NotAllowed: the URL may not be called; the message is a sentence.

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

    Raise `NotAllowed` if there is none, or if one is neither public nor in a listed network. A
    listed origin may have any address.
    """
    if not addresses:
        raise NotAllowed(f"{destination.host} has no address")
    if not destination.is_listed and not all(_may_be_dialled(each, allowed) for each in addresses):
        raise _not_public(destination.host, allowed)


def literal_address(host: str) -> Address | None:
    """Return the IP address in `host`, or None if `host` is a name."""
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
    """Return True for a host such as ``127.1``, ``2130706433`` or ``0x7f.1``.

    Resolvers read these as addresses.
    """
    is_number = _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]) is not None
    return is_number and literal_address(host) is None
