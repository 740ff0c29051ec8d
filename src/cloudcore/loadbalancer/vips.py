"""Which load balancer has which address of the operator's ranges.

An address is reserved in the transaction that creates its load balancer, and free again when the
last of it is torn down; that two have one is refused by the primary key of the reservations.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

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
    if vip and not any(ip_address(vip) in each for each in ranges):
        raise InvalidInput(
            "vip: it is in none of the ranges of this install", field="vip", reason="out_of_range"
        )


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


def _addresses(ranges: Ranges) -> Iterator[str]:
    return (str(address) for each in ranges for address in each.hosts())
