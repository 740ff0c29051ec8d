"""Which URLs of an identity provider are asked: owners of organizations name them, not operators.

Only https, and only addresses of the public internet: an install stands inside a network whose
other services trust it. An operator lists the origins of providers inside, and of providers over
plain HTTP (`oidc_internal_origins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

MAX_URL: Final = 1000

_PORTS: Final = {"https": 443, "http": 80}
_NAT64: Final = IPv6Network("64:ff9b::/96")


class Destination(NamedTuple):
    """The host of a URL that may be asked."""

    host: str
    port: int
    is_internal: bool
    """True if the operator has listed it: it may have any address."""


def origin_of(url: str) -> str:
    """Return the origin of a URL as browsers write it: in lower case, without a default port."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def check_url(url: str, internal_origins: Sequence[str]) -> Destination:
    """Return the destination of a URL that may be asked, before its name is resolved.

    Raises:
        ValueError: with the reason as a sentence.

    """
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"a URL has at most {MAX_URL} printable ASCII characters, and no space")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("write it as https://HOST/…")
    if parts.username is not None or parts.password is not None or "#" in url:
        raise ValueError("it has a user name, a password or a fragment")
    port = parts.port or _PORTS[parts.scheme]  # raises ValueError for a port out of range
    is_internal = origin_of(url) in internal_origins
    if parts.scheme != "https" and not is_internal:
        raise ValueError("it is not https")
    destination = Destination(parts.hostname, port, is_internal)
    try:
        literal = ip_address(parts.hostname)
    except ValueError:
        return destination
    check_addresses(destination, [literal])
    return destination


def check_addresses(
    destination: Destination, addresses: Iterable[IPv4Address | IPv6Address]
) -> None:
    """Check all addresses of a destination.

    Raises:
        ValueError: one of them is loopback, private, link-local or otherwise not public.

    """
    if not destination.is_internal and not all(map(_is_public, addresses)):
        raise ValueError(
            f"{destination.host} has an address that is not public; the operator of this install "
            "can list its origin in ENTREPOT_OIDC_INTERNAL_ORIGINS"
        )


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        # Addresses of IPv6 that stand for one of IPv4, which may be private.
        if address.ipv4_mapped is not None:
            return _is_public(address.ipv4_mapped)
        if address.sixtofour is not None or address.teredo is not None or address in _NAT64:
            return False
    return address.is_global and not address.is_multicast
