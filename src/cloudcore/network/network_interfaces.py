"""Network interfaces: addresses for other families, and ``/v1/network-interfaces``.

Everything runs in the caller's transaction. Addresses that were never used are assigned first, then
the one that has been free for longest, so that packets to a former owner are unlikely to reach a
new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Final, NamedTuple

import sqlalchemy as sa
from msgspec import structs

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, given, insert_new
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict, invalid_field
from cloudcore.network import rows
from cloudcore.network.resources import MOST_GROUPS, SECURITY_GROUP, NetworkInterface, Subnet
from cloudcore.network.rows import INTERFACES as ROWS
from cloudcore.network.workflow import change_vpc
from cloudcore.ports import Port
from cloudcore.resource_references import Authorize
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import Reference
from cloudcore.web.bodies import ResourceRef

_f = rows.free_addresses.c
_OLDEST: Final = Statement(
    sa.select(_f.position)
    .where(given(_f.subnet_id))
    .order_by(_f.freed_at, _f.position)
    .limit(ONE)
    .offset(ZERO)
)
_TAKE: Final = Statement(rows.free_addresses.delete().where(given(_f.subnet_id, _f.position)))
_FREE: Final = Statement(insert_new(rows.free_addresses, ("subnet_id", "position", "freed_at")))
_LOCK: Final = Statement(
    rows.INTERFACES.columns.where(
        rows.INTERFACES.table.c.id == sa.bindparam("interface_id")
    ).with_for_update(of=rows.INTERFACES.table)
)


class SubnetOf(NamedTuple):
    """A subnet, as other families see it."""

    id: str
    name: str
    vpc_id: str
    vpc_name: str
    node: str
    """Name of the machine of the VPC."""


class Interfaces:
    """Assigns addresses of subnets to instances and load balancers; sets their security groups."""

    def subnet(
        self, tx: Connection, account_id: str, region: str, reference: str, authorize: Authorize
    ) -> SubnetOf:
        """Return the subnet that a name, an id or a CRN refers to.

        `authorize`, as in `cloudcore.resource_references.resolve`, checks ``network:GetSubnet``.

        Raise `InvalidInput`, naming the field ``subnet``, if the reference is malformed or of
        another account or region. Raise `NotFound` if there is no such subnet.
        """
        found = rows.SUBNETS.resolve(tx, account_id, region, "subnet", reference, authorize)
        vpc = rows.VPCS.get(tx, account_id, region, found.vpc.id)
        return SubnetOf(found.id, found.name, vpc.id, vpc.name, vpc.node)

    def security_groups(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        vpc_id: str,
        references: Sequence[str],
        authorize: Authorize,
    ) -> Sequence[Reference]:
        """Return the security groups of a VPC that names, ids or CRNs refer to, without duplicates.

        `authorize` checks ``network:GetSecurityGroup``.

        Raise `InvalidInput` if there are too many, or one is of another account, region or VPC;
        `NotFound` if there is no such group.
        """
        found = [
            rows.SECURITY_GROUPS.resolve(tx, account_id, region, "security_groups", each, authorize)
            for each in references
        ]
        return _held(tx, account_id, vpc_id, [each.id for each in found])

    def place(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        subnet: str,
        security_groups: Sequence[str],
        owner: str,
        now: int,
        *,
        is_balancer: bool = False,
    ) -> NetworkInterface:
        """Assign addresses of a subnet to `owner`, a CRN, and wake the workflow of its VPC.

        Return the new interface. `subnet` and `security_groups` are ids; without groups, the VPC's
        default group is used.

        Raises:
            NotFound: there is no such subnet or group.
            InvalidInput: a group is of another VPC, or there are too many.
            Conflict: the subnet has no free address.
            QuotaExceeded: the account has reached its quota of interfaces.

        """
        use = rows.INTERFACES.check_room(tx, account_id, region)
        of = rows.SUBNETS.lock(tx, account_id, subnet)
        groups = _groups(tx, account_id, of.vpc.id, security_groups)
        ipv4, ipv6, of = _allotted(tx, of)
        rows.SUBNETS.save(tx, of)
        change_vpc(tx, account_id, of.vpc.id, now)
        identity = uuid7(now)
        made = NetworkInterface(
            id=identity,
            account_id=account_id,
            region=region,
            created_at=now,
            updated_at=now,
            name=f"interface-{identity[-12:]}",
            vpc=of.vpc,
            subnet=Reference(of.id, of.name),
            address_ipv4=ipv4,
            address_ipv6=ipv6,
            owner=owner,
            is_balancer=is_balancer,
            security_groups=groups,
        )
        rows.INTERFACES.add(tx, made)
        rows.set_memberships(tx, made.id, [each.id for each in groups])
        rows.INTERFACES.counted.emit_level(tx, account_id, use, now)
        return made

    def release(self, tx: Connection, interface_id: str, now: int) -> None:
        """Delete an interface, which frees its addresses; do nothing if it is already gone."""
        found = rows.INTERFACES.read_one(tx, _LOCK, interface_id=interface_id)
        if found is None:
            return
        rows.set_memberships(tx, found.id, ())
        rows.INTERFACES.remove(tx, found, now)
        if found.address_ipv4 is not None:
            of = rows.SUBNETS.lock(tx, found.account_id, found.subnet.id)
            position = _position(of, found.address_ipv4)
            tx.execute(_FREE, subnet_id=of.id, position=position, freed_at=now)
        change_vpc(tx, found.account_id, found.vpc.id, now)

    def set_groups(
        self, tx: Connection, interface_id: str, group_ids: Sequence[str], now: int
    ) -> None:
        """Replace the security groups of an interface; do nothing if the interface is gone.

        Without any groups, the VPC's default group is used.

        Raise `NotFound` if there is no such group, `InvalidInput` if a group is of another VPC, or
        there are too many.
        """
        found = rows.INTERFACES.read_one(tx, _LOCK, interface_id=interface_id)
        if found is None:
            return
        of = (found.account_id, found.vpc.id)
        groups = _groups(tx, *of, group_ids)
        if groups == found.security_groups:
            return
        changed = structs.replace(found, security_groups=groups, updated_at=now)
        rows.INTERFACES.save(tx, changed)
        rows.set_memberships(tx, found.id, [each.id for each in groups])
        change_vpc(tx, *of, now)


def _groups(
    tx: Connection, account_id: str, vpc_id: str, group_ids: Sequence[str]
) -> tuple[Reference, ...]:
    """Return the groups, or without ids the VPC's default group, locked until `tx` ends."""
    if group_ids:
        return _held(tx, account_id, vpc_id, group_ids)
    default = rows.default_group(tx, account_id, vpc_id)
    assert default is not None
    return (Reference(default.id, default.name),)


def _held(
    tx: Connection, account_id: str, vpc_id: str, group_ids: Sequence[str]
) -> tuple[Reference, ...]:
    """Return groups of a VPC without duplicates, locked until `tx` ends.

    Raise `NotFound` or `InvalidInput` as `Interfaces.security_groups`.
    """
    wanted = dict.fromkeys(group_ids)
    if len(wanted) > MOST_GROUPS:
        words = f"an interface is in at most {MOST_GROUPS} security groups"
        raise invalid_field("security_groups", words, "out_of_range")
    found = []
    for each in wanted:
        group = rows.SECURITY_GROUPS.hold(tx, account_id, each)
        if group is None:
            raise rows.SECURITY_GROUPS.missing()
        if group.vpc.id != vpc_id:
            words = f"{group.name} is a security group of another VPC"
            raise invalid_field("security_groups", words, "other_vpc")
        found.append(Reference(group.id, group.name))
    return tuple(found)


def _allotted(tx: Connection, of: Subnet) -> tuple[str | None, str | None, Subnet]:
    """Take free addresses of a locked subnet; return (IPv4, IPv6, changed subnet).

    An address is None if the subnet has no such network. Raise `Conflict` if no IPv4 address is
    free.
    """
    ipv4 = ipv6 = None
    if of.cidr_ipv4 is not None:
        network = IPv4Network(of.cidr_ipv4)
        position = of.next_ipv4
        if position < network.num_addresses - 1:  # no interface gets the last address
            of = structs.replace(of, next_ipv4=position + 1)
        else:
            row = tx.row(_OLDEST, subnet_id=of.id)
            if row is None:
                words = f"the subnet {of.name} has no address left"
                raise Conflict(words, reason="no_address_left", subnet=of.name)
            position = row[0]
            tx.execute(_TAKE, subnet_id=of.id, position=position)
        ipv4 = str(network[position])
    if of.cidr_ipv6 is not None:
        ipv6 = str(IPv6Network(of.cidr_ipv6)[of.next_ipv6])
        of = structs.replace(of, next_ipv6=of.next_ipv6 + 1)
    return ipv4, ipv6, of


def _position(of: Subnet, address: str) -> int:
    """Return the offset of an address from the start of its subnet."""
    assert of.cidr_ipv4 is not None
    return int(IPv4Address(address)) - int(IPv4Network(of.cidr_ipv4).network_address)


def _show(found: NetworkInterface) -> Sequence[ResourceRef]:
    of = (found.region, found.account_id)
    return [
        ResourceRef(id=each.id, crn=SECURITY_GROUP.crn(*of, each.name), name=each.name)
        for each in found.security_groups
    ]


INTERFACES: Final[Port[Interfaces]] = Port("network.interfaces")
"""The port through which instances and load balancers get their addresses."""

NETWORK_INTERFACES: Final = Methods(
    ROWS,
    composites=(
        Composite(
            name="security_groups",
            words="The groups whose rules hold for it.",
            shown=Sequence[ResourceRef],
            show=_show,
        ),
    ),
)
