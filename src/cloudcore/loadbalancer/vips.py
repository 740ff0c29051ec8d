"""Which load balancer has which address of the operator's ranges.

An address is reserved in the transaction that creates its load balancer, and free again when the
last of it is torn down; that two have one is refused by the primary key of the reservations.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.load_balancer import LoadBalancer
from cloudcore.loadbalancer.ports import Ranges


def check_vip(vip: str, ranges: Ranges) -> None:
    """Refuse an address that load balancers cannot have.

    Raises:
        Conflict: the operator has given no addresses to load balancers.
        InvalidInput: it is none of them; an empty one stands for any.

    """
    if not ranges:
        raise Conflict(
            "this install has no addresses for load balancers: the operator sets balancer_vips",
            reason="no_vips",
            setting="balancer_vips",
        )
    if vip and not any(_is_host(ip_address(vip), each) for each in ranges):
        words = "vip: no host can have it in a range of this install"
        raise InvalidInput(words, field="vip", reason="out_of_range")


def reserve(tx: Connection, found: LoadBalancer, ranges: Ranges) -> str:
    """Reserve the address that a load balancer wants, or a free one; return it.

    Raises:
        Conflict: it is taken, or none is free.

    """
    if found.vip:
        if not rows.reserve(tx, found, found.vip):
            raise Conflict("the address is taken", reason="vip_taken", vip=found.vip)
        return found.vip
    taken = rows.taken_vips(tx)
    for vip in _addresses(ranges):
        if vip not in taken and rows.reserve(tx, found, vip):  # else another one was faster
            return vip
    raise Conflict("no address is free for a load balancer", reason="no_vips")


def _is_host(address: IPv4Address | IPv6Address, network: IPv4Network | IPv6Network) -> bool:
    """Return True if `network.hosts` has an address."""
    if address not in network:
        return False
    if network.num_addresses <= 2:  # RFC 3021, RFC 6164
        return True
    is_broadcast = network.version == 4 and address == network.broadcast_address
    return address != network.network_address and not is_broadcast


def _addresses(ranges: Ranges) -> Iterator[str]:
    return (str(address) for each in ranges for address in each.hosts())
