"""``/v1/vpcs``: VPCs, each made with its main route table and its default security group."""

from __future__ import annotations

from ipaddress import IPv6Network
from typing import Any, Final

from msgspec import structs

from cloudcore.account_rows import lock_account
from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, invalid_field
from cloudcore.network import rows
from cloudcore.network.needs import NetworkNeeds, check_rules, with_checked_rules
from cloudcore.network.ranges import GLOBAL, lies_in
from cloudcore.network.resources import (
    RouteTable,
    SecurityGroup,
    StoredRoute,
    Vpc,
    check_vpc,
    default_rules,
)
from cloudcore.network.rows import VPCS as ROWS
from cloudcore.network.workflow import VPC_WORK
from cloudcore.nodes.rows import choose
from cloudcore.resource_names import is_name
from cloudcore.resources.methods import Methods, Referrer
from cloudcore.resources.resource import BASE, DELETING, Reference
from cloudcore.resources.rows import Rows

CAPABILITY: Final = "networks"
"""The capability of machines that VPCs can be on."""


def _before_save(tx: Connection, new: Vpc, old: Vpc | None) -> Vpc:
    if old is not None:
        if old.status == DELETING:
            raise Conflict("the VPC is being deleted", reason="being_deleted")
        return new
    node = choose(tx, CAPABILITY, new.created_at)
    if node is None:
        raise Conflict("no machine makes networks now; try it again later", reason="no_machine")
    if new.cidr_ipv6 and _is_global(new.cidr_ipv6) and rows.is_taken(tx, new.cidr_ipv6):
        words = f"cidr_ipv6: {new.cidr_ipv6} belongs to another VPC"
        raise Conflict(words, field="cidr_ipv6", reason="taken")
    return structs.replace(new, node=node)


def _before_lock(tx: Connection, found: Vpc, now: int) -> None:
    lock_account(tx, found.account_id)  # new parts of the VPC hold it before they lock the job
    VPC_WORK.wake(tx, found, now)  # first: steps, too, lock the job before the record


def _before_delete(tx: Connection, found: Vpc) -> None:
    """Delete what was created together with a VPC.

    Raise `Conflict` if the VPC has other route tables or security groups.
    """
    of = (found.account_id, found.id)
    tables = rows.of_vpc(tx, rows.ROUTE_TABLES, *of)
    groups = rows.of_vpc(tx, rows.SECURITY_GROUPS, *of)
    for kind, names in (
        (rows.ROUTE_TABLES.of, [each.name for each in tables if not each.is_main]),
        (rows.SECURITY_GROUPS.of, [each.name for each in groups if not each.is_default]),
    ):
        if names:
            words = f"the {kind.noun} {names[0]} is in it; delete that first"
            raise Conflict(words, reason="is_referred_to", **{kind.one: names[0]})
    for table in tables:
        rows.ROUTE_TABLES.remove(tx, table, found.updated_at)
    for group in groups:
        rows.SECURITY_GROUPS.remove(tx, group, found.updated_at)


def _after(tx: Connection, _found: Vpc, made: Vpc | None, needs: NetworkNeeds) -> None:
    if made is None or made.status == DELETING:  # those of a VPC that is deleted are gone
        return
    if not rows.of_vpc(tx, rows.ROUTE_TABLES, made.account_id, made.id):
        _check_range(made, needs)
        _add_defaults(tx, made)
        check_rules(tx, made.account_id, made.id, needs)
        VPC_WORK.wake(tx, made, made.created_at)


def _check_range(new: Vpc, needs: NetworkNeeds) -> None:
    """Raise `InvalidInput` if a VPC has a global IPv6 prefix outside the operator's ranges."""
    if new.cidr_ipv6 is None or not _is_global(new.cidr_ipv6):
        return
    prefix = IPv6Network(new.cidr_ipv6)
    if any(prefix.subnet_of(each) for each in needs.ipv6_ranges):
        return
    ranges = ", ".join(map(str, needs.ipv6_ranges))
    words = f"the operator has {ranges} for VPCs" if ranges else "the operator has none for VPCs"
    raise invalid_field("cidr_ipv6", words, "out_of_range")


def _is_global(prefix: str) -> bool:
    return lies_in(IPv6Network(prefix), str(GLOBAL))


def _add_defaults(tx: Connection, new: Vpc) -> None:
    """Insert the main route table and the default security group of a new VPC."""
    of = Reference(new.id, new.name)
    base: dict[str, Any] = {name: getattr(new, name) for name in BASE if name != "id"}
    local = (new.cidr_ipv4, *([new.cidr_ipv6] if new.cidr_ipv6 else []))
    rows.ROUTE_TABLES.add(
        tx,
        RouteTable(
            **base,
            id=uuid7(new.created_at),
            name=_free_name(tx, rows.ROUTE_TABLES, new, "main"),
            vpc=of,
            is_main=True,
            routes=tuple(StoredRoute(each, "local") for each in local),
        ),
    )
    group_id = uuid7(new.created_at)
    name = _free_name(tx, rows.SECURITY_GROUPS, new, "default")
    rows.SECURITY_GROUPS.add(
        tx,
        SecurityGroup(
            **base,
            id=group_id,
            name=name,
            vpc=of,
            is_default=True,
            rules=default_rules(Reference(group_id, name)),
        ),
    )


def _free_name(
    tx: Connection, of: Rows[RouteTable] | Rows[SecurityGroup], vpc: Vpc, word: str
) -> str:
    """Return ``shop-main`` for the VPC ``shop``; if that is invalid or taken, use the VPC's id."""
    name = f"{vpc.name}-{word}"
    is_free = is_name(name) and of.find_named(tx, vpc.account_id, vpc.region, name) is None
    return name if is_free else f"{word}-{vpc.id[-12:]}"


VPCS: Final = Methods(
    ROWS,
    check=check_vpc,
    before_lock=_before_lock,
    before_save=_before_save,
    before_delete=_before_delete,
    removal=VPC_WORK.delete,
    after=_after,
    around=with_checked_rules,
    referrers=(
        Referrer(rows.SUBNETS, "vpc"),
        Referrer(rows.EGRESS_ONLY_GATEWAYS, "vpc"),
        Referrer(rows.INTERNET_GATEWAYS, "vpc"),
    ),
    statuses={"update": (409,)},
    docs={
        "create": "Create a VPC, with its main route table and its default security group."
        "\n\nThe interfaces of the default group reach one another, and everything outside; nothing"
        " else reaches them. An account has at most 20 VPCs.",
        "delete": "Delete a VPC; it is `deleting` until its machine has taken it down.\n\nIt is"
        " refused (409) while it has subnets, gateways, or route tables and security groups of its"
        " owner.",
    },
)
