"""``/v1/subnets``: subnets lie within their VPC, and do not overlap one another."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Final

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict, invalid_field
from cloudcore.network import rows
from cloudcore.network.needs import check_rules_of_part, with_checked_rules
from cloudcore.network.ranges import lies_in, overlap
from cloudcore.network.resources import Subnet, check_subnet
from cloudcore.network.rows import SUBNETS as ROWS
from cloudcore.network.workflow import change_vpc, removal_of
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import Reference

_FORGET_FREE: Final = Statement(
    rows.free_addresses.delete().where(given(rows.free_addresses.c.subnet_id))
)


def _before_save(tx: Connection, new: Subnet, old: Subnet | None) -> Subnet:
    new = structs.replace(new, route_table=_table(tx, new))
    if old is None or new.route_table != old.route_table:
        change_vpc(tx, new.account_id, new.vpc.id, new.updated_at)
    if old is None:
        _check_networks(tx, new)
    return new


def _check_networks(tx: Connection, new: Subnet) -> None:
    """Raise `InvalidInput` for a network outside the locked VPC, `Conflict` if subnets overlap."""
    vpc = rows.VPCS.get(tx, new.account_id, new.region, new.vpc.id)
    networks = {
        "cidr_ipv4": (new.cidr_ipv4, vpc.cidr_ipv4),
        "cidr_ipv6": (new.cidr_ipv6, vpc.cidr_ipv6),
    }
    for field, (inner, outer) in networks.items():
        if inner is not None and not lies_in(ip_network(inner), outer):
            words = f"{inner} is not within {outer or 'the VPC, which has none'}"
            raise invalid_field(field, words, "out_of_range")
    for other in rows.of_vpc(tx, ROWS, new.account_id, new.vpc.id):
        if overlap(new.cidr_ipv4, other.cidr_ipv4) or overlap(new.cidr_ipv6, other.cidr_ipv6):
            words = f"it overlaps the subnet {other.name}"
            raise Conflict(words, reason="overlaps", subnet=other.name)


def _table(tx: Connection, new: Subnet) -> Reference:
    """Return the route table that a subnet names, or by default the main one of its VPC.

    Raise `InvalidInput` if the table is of another VPC, `NotFound` if it is gone.
    """
    if new.route_table is None:
        found = rows.main_table(tx, new.account_id, new.vpc.id)
    else:
        found = rows.ROUTE_TABLES.find(tx, new.account_id, new.route_table.id)
    if found is None:
        raise rows.ROUTE_TABLES.missing()
    if found.vpc.id != new.vpc.id:
        raise invalid_field("route_table", f"{found.name} is of another VPC", "other_vpc")
    return Reference(found.id, found.name)


def _before_delete(tx: Connection, found: Subnet) -> None:
    user = rows.user_of_subnet(tx, found)
    if user is not None:
        words = f"{user} has an address of it; delete that first"
        raise Conflict(words, reason="in_use", used_by=user)
    tx.execute(_FORGET_FREE, subnet_id=found.id)


SUBNETS: Final = Methods(
    ROWS,
    check=check_subnet,
    before_save=_before_save,
    before_delete=_before_delete,
    removal=removal_of(ROWS),
    after=check_rules_of_part,
    around=with_checked_rules,
    targets={"vpc": rows.VPCS, "route_table": rows.ROUTE_TABLES},
    statuses={"delete": (409,)},
    docs={
        "create": "Create a subnet within a VPC.\n\nIt is refused (409) if it overlaps another one"
        " there. An account has at most 100.",
        "delete": "Delete a subnet.\n\nIt is refused (409) while something has an address of it.",
    },
)
