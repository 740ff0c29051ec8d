"""Conditions of a statement: the client addresses and times to which it applies."""

from __future__ import annotations

import re
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any, Final, NamedTuple

from cloudcore.iam.grammar import StringForm, as_list, as_object, as_text, refusal
from cloudcore.wire import moment_of

Network = IPv4Network | IPv6Network

_NETWORK: Final = StringForm(
    re.compile(r"[0-9A-Fa-f.:/]{2,60}"), "addresses, or networks such as 10.0.0.0/8"
)
_MOMENT: Final = StringForm(
    re.compile(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
        r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
    ),
    "a date-time with its offset, such as 2030-01-31T00:00:00Z (RFC 3339)",
)
_NETWORK_STEPS: Final = 2000
"""Steps to compare an address with a network; see `patterns.StepBudget`."""
_MAPPED_BITS: Final = 96
"""Prefix length of ``::ffff:0:0``, the IPv4-mapped addresses (RFC 4291 §2.5.5.2)."""


class Conditions(NamedTuple):
    """The conditions of a statement; all those present must hold."""

    ip_address: tuple[Network, ...] = ()
    not_ip_address: tuple[Network, ...] = ()
    date_before: int | None = None
    """Microseconds since the epoch."""
    date_after: int | None = None

    @property
    def steps(self) -> int:
        """Return the maximum number of steps that `hold` takes; see `patterns.StepBudget`."""
        return _NETWORK_STEPS * (len(self.ip_address) + len(self.not_ip_address))

    def hold(self, source_ip: IPv4Address | IPv6Address | None, now: int) -> bool:
        """Return True if all conditions hold; an unknown address (None) is in no network."""
        return self is NO_CONDITIONS or (
            (not self.ip_address or _inside(source_ip, self.ip_address))
            and not _inside(source_ip, self.not_ip_address)
            and (self.date_before is None or now < self.date_before)
            and (self.date_after is None or now > self.date_after)
        )


NO_CONDITIONS: Final = Conditions()

CONDITION_DOCS: Final = {
    "ip_address": "a list of addresses or networks; the client's address is in one of them",
    "not_ip_address": "a list of addresses or networks; the client's address is in none of them",
    "date_before": "a date-time with its offset (RFC 3339); it is earlier",
    "date_after": "a date-time with its offset (RFC 3339); it is later",
}
"""The operand of each condition, and when the condition holds."""


def parse_conditions(value: Any, where: str) -> Conditions:  # noqa: ANN401 - JSON, not yet checked
    """Parse the conditions of a statement; `where` is their path in the document, for errors.

    Raise `InvalidInput` if a condition is unknown, or its operand is malformed.
    """
    parts = as_object(value, where, set(Conditions._fields))
    return Conditions(
        ip_address=_networks(parts, "ip_address", where),
        not_ip_address=_networks(parts, "not_ip_address", where),
        date_before=_moment(parts, "date_before", where),
        date_after=_moment(parts, "date_after", where),
    )


def _networks(parts: dict[str, Any], name: str, where: str) -> tuple[Network, ...]:
    if name not in parts:
        return ()
    texts = as_list(parts[name], f"{where}.{name}", _NETWORK)
    try:
        return tuple(_unmapped(ip_network(text)) for text in texts)
    except ValueError:
        raise refusal(f"{where}.{name}", "malformed", _NETWORK.words) from None


def _unmapped(network: Network) -> Network:
    """Convert a network of IPv4-mapped IPv6 addresses to IPv4; see `_inside`."""
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network


def _inside(address: IPv4Address | IPv6Address | None, networks: tuple[Network, ...]) -> bool:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # how a dual-stack socket reports IPv4 peers
    return address is not None and any(address in network for network in networks)


def _moment(parts: dict[str, Any], name: str, where: str) -> int | None:
    if name not in parts:
        return None
    field = f"{where}.{name}"
    text = as_text(parts[name], field, _MOMENT)
    try:
        return moment_of(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError):
        raise refusal(field, "malformed", _MOMENT.words) from None
