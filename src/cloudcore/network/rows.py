"""The tables of networks, and queries about their relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, given, insert_new
from cloudcore.db.schema import ByteOrdered, Moment, one_of, partial_index
from cloudcore.db.statement import Statement
from cloudcore.db.tables import columns, indexes, named_index, refers, table
from cloudcore.network.resources import (
    EGRESS_ONLY_GATEWAY,
    INTERNET_GATEWAY,
    NETWORK_INTERFACE,
    ROUTE_TABLE,
    SECURITY_GROUP,
    SUBNET,
    VPC,
    RouteTable,
    SecurityGroup,
    Subnet,
)
from cloudcore.nodes.rows import OnNode
from cloudcore.resources.resource import Record
from cloudcore.resources.rows import Rows

R = TypeVar("R", bound=Record)
_IS_MAIN: Final = sa.text("is_main")
_IS_DEFAULT: Final = sa.text("is_default")
_IS_GLOBAL: Final = sa.text("cidr_ipv6 < 'f'")
"""The other IPv6 prefixes, unique local addresses, begin with ``fd``."""

VPCS: Final = Rows(
    VPC,
    one_of("status", "provisioning", "active", "degraded", "deleting"),
    sa.Index("ix_vpcs_node_id", "node", "id"),
    partial_index("uq_vpcs_cidr_ipv6", "cidr_ipv6", where=_IS_GLOBAL, unique=True),
    types={"cidr_ipv6": ByteOrdered},
)
INTERNET_GATEWAYS: Final = Rows(
    INTERNET_GATEWAY,
    sa.Index("uq_internet_gateways_vpc_id", "vpc_id", unique=True),
    references={"vpc": VPCS},
)
EGRESS_ONLY_GATEWAYS: Final = Rows(
    EGRESS_ONLY_GATEWAY,
    sa.Index("uq_egress_only_gateways_vpc_id", "vpc_id", unique=True),
    # Its uplink: a VPC with an egress-only gateway has an internet gateway attached.
    sa.ForeignKeyConstraint(
        ["vpc_id"], ["internet_gateways.vpc_id"], name="fk_egress_only_gateways_uplink"
    ),
    references={"vpc": VPCS},
)
ROUTE_TABLES: Final = Rows(
    ROUTE_TABLE,
    sa.Index("ix_route_tables_vpc_id", "vpc_id"),
    sa.Index("ix_route_tables_internet_gateway_id", "internet_gateway_id"),
    sa.Index("ix_route_tables_egress_only_gateway_id", "egress_only_gateway_id"),
    partial_index("uq_route_tables_main", "vpc_id", where=_IS_MAIN, unique=True),
    references={
        "vpc": VPCS,
        "internet_gateway": INTERNET_GATEWAYS,
        "egress_only_gateway": EGRESS_ONLY_GATEWAYS,
    },
)
SUBNETS: Final = Rows(
    SUBNET,
    sa.CheckConstraint("cidr_ipv4 IS NOT NULL OR cidr_ipv6 IS NOT NULL", name="cidr_ipv4"),
    sa.CheckConstraint("route_table_id IS NOT NULL", name="route_table_id"),
    sa.Index("ix_subnets_vpc_id", "vpc_id"),
    sa.Index("ix_subnets_route_table_id", "route_table_id"),
    references={"vpc": VPCS, "route_table": ROUTE_TABLES},
)
SECURITY_GROUPS: Final = Rows(
    SECURITY_GROUP,
    sa.Index("ix_security_groups_vpc_id", "vpc_id"),
    partial_index("uq_security_groups_default", "vpc_id", where=_IS_DEFAULT, unique=True),
    references={"vpc": VPCS},
)
INTERFACES: Final = Rows(
    NETWORK_INTERFACE,
    sa.CheckConstraint("address_ipv4 IS NOT NULL OR address_ipv6 IS NOT NULL", name="address_ipv4"),
    sa.Index("uq_network_interfaces_address_ipv4", "vpc_id", "address_ipv4", unique=True),
    sa.Index("uq_network_interfaces_address_ipv6", "vpc_id", "address_ipv6", unique=True),
    sa.Index("ix_network_interfaces_subnet_id", "subnet_id"),
    references={"vpc": VPCS, "subnet": SUBNETS},
)
memberships: Final = table(
    "network_interface_groups",
    refers("interface_id KEY", "network_interfaces"),
    refers("group_id KEY", "security_groups"),
    indexes("group_id"),
)
"""Which interface is in which security groups."""
free_addresses: Final = table(
    "subnet_free_addresses",
    refers("subnet_id KEY", "subnets"),
    columns(sa.BigInteger, "position KEY"),
    columns(Moment, "freed_at"),
    named_index("freed_at", "subnet_id, freed_at, position"),
)
"""IPv4 addresses that interfaces no longer have, counted from the beginning of their subnets."""

_CHILDREN: Final[tuple[Rows[Any], ...]] = (
    INTERNET_GATEWAYS,
    EGRESS_ONLY_GATEWAYS,
    ROUTE_TABLES,
    SUBNETS,
    SECURITY_GROUPS,
    INTERFACES,
)
ALL: Final = (VPCS, *_CHILDREN)
VPCS_ON: Final = OnNode(VPCS)
_OF_VPC: Final = {
    rows.of.one: Statement(
        rows.columns.where(given(rows.table.c.account_id, rows.table.c.vpc_id)).order_by(
            rows.table.c.id
        )
    )
    for rows in _CHILDREN
}
_v, _t, _g = VPCS.table.c, ROUTE_TABLES.table.c, SECURITY_GROUPS.table.c
_i, _m, _f = INTERFACES.table.c, memberships.c, free_addresses.c
_TAKEN: Final = Statement(sa.select(sa.exists().where(given(_v.cidr_ipv6))))
_BUMP: Final = Statement(
    VPCS.table.update()
    .where(given(_v.account_id), _v.id == sa.bindparam("vpc_id"))
    .values(generation=_v.generation + ONE)
)
_NOTE_CHECKED: Final = Statement(
    VPCS.table.update()
    .where(given(_v.account_id), _v.id == sa.bindparam("vpc_id"))
    .values(checked=_v.generation)
)
_MAIN: Final = Statement(
    ROUTE_TABLES.columns.where(given(_t.account_id, _t.vpc_id), _t.is_main).with_for_update(
        of=ROUTE_TABLES.table, read=True, key_share=True
    )
)
_DEFAULT: Final = Statement(
    SECURITY_GROUPS.columns.where(given(_g.account_id, _g.vpc_id), _g.is_default).with_for_update(
        of=SECURITY_GROUPS.table, read=True, key_share=True
    )
)
_USER_OF_SUBNET: Final = Statement(
    sa.select(_i.owner).where(given(_i.account_id, _i.subnet_id)).limit(ONE).offset(ZERO)
)
_MEMBER: Final = Statement(
    sa.select(_i.owner)
    .join(memberships, _m.interface_id == _i.id)
    .where(given(_i.account_id, _m.group_id))
    .limit(ONE)
    .offset(ZERO)
)
_ADD_MEMBERSHIP: Final = Statement(insert_new(memberships, ("interface_id", "group_id")))
_REMOVE_MEMBERSHIPS: Final = Statement(memberships.delete().where(given(_m.interface_id)))


def of_vpc(tx: Connection, rows: Rows[R], account_id: str, vpc_id: str) -> Sequence[R]:
    """Return all resources of a kind in a VPC, oldest first."""
    return rows.read_all(tx, _OF_VPC[rows.of.one], account_id=account_id, vpc_id=vpc_id)


def is_taken(tx: Connection, cidr_ipv6: str) -> bool:
    """Return True if a VPC of any account has this IPv6 prefix."""
    row = tx.row(_TAKEN, cidr_ipv6=cidr_ipv6)
    return row is not None and bool(row[0])


def main_table(tx: Connection, account_id: str, vpc_id: str) -> RouteTable | None:
    """Return the main route table of a VPC, locked until `tx` ends; None if there is none."""
    return ROUTE_TABLES.read_one(tx, _MAIN, account_id=account_id, vpc_id=vpc_id)


def default_group(tx: Connection, account_id: str, vpc_id: str) -> SecurityGroup | None:
    """Return the default security group of a VPC, locked until `tx` ends; None if there is none."""
    return SECURITY_GROUPS.read_one(tx, _DEFAULT, account_id=account_id, vpc_id=vpc_id)


def bump(tx: Connection, account_id: str, vpc_id: str) -> None:
    """Increment a VPC's change count (`generation`), which locks all of the VPC until `tx` ends."""
    tx.execute(_BUMP, account_id=account_id, vpc_id=vpc_id)


def note_checked(tx: Connection, account_id: str, vpc_id: str) -> None:
    """Store that the driver has accepted the current rules of a VPC."""
    tx.execute(_NOTE_CHECKED, account_id=account_id, vpc_id=vpc_id)


def user_of_subnet(tx: Connection, subnet: Subnet) -> str | None:
    """Return the CRN of one resource with an address of a subnet, or None."""
    row = tx.row(_USER_OF_SUBNET, account_id=subnet.account_id, subnet_id=subnet.id)
    return row[0] if row else None


def member(tx: Connection, group: SecurityGroup) -> str | None:
    """Return the CRN of one resource whose interface is in a security group, or None."""
    row = tx.row(_MEMBER, account_id=group.account_id, group_id=group.id)
    return row[0] if row else None


def set_memberships(tx: Connection, interface_id: str, group_ids: Sequence[str]) -> None:
    """Replace the groups of an interface."""
    tx.execute(_REMOVE_MEMBERSHIPS, interface_id=interface_id)
    for group_id in group_ids:
        tx.execute(_ADD_MEMBERSHIP, interface_id=interface_id, group_id=group_id)
