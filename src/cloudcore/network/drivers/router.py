"""Set up the namespace of a VPC, which is its router.

Each function must run in a thread that is in the namespace (`namespaces.within`), where it also
starts `nft`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from cloudcore.network.driver import InterfacePlan, RulesRefused, VpcPlan
from cloudcore.network.drivers.links import (
    GUEST,
    ROUTER,
    Address,
    Links,
    Network,
    open_links,
    whole,
)
from cloudcore.network.drivers.namespaces import set_sysctl
from cloudcore.network.drivers.nft_check import program, run_nft
from cloudcore.network.drivers.rules import (
    TABLE,
    UPLINK,
    Vips,
    is_routed,
    link_of,
    render,
    render_vips,
)

_INTERNET: Final[dict[int, Network]] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}
_SECONDS: Final = 60
_SYSCTLS: Final = {
    # Links that are added later get the values of `default`.
    "ipv4/conf/all/rp_filter": 0,  # the rules check senders, of both versions
    "ipv4/conf/default/rp_filter": 0,
    "ipv4/conf/all/send_redirects": 0,
    "ipv4/conf/default/send_redirects": 0,
    "ipv4/ip_forward": 1,
    "ipv6/conf/all/disable_ipv6": 0,
    "ipv6/conf/all/forwarding": 1,
}


def apply_plan(plan: VpcPlan, vips: Vips, machine_link: str, machine: int, mtu: int) -> str:
    """Carry out a plan: first the rules, in one transaction, then the links. Return the rules.

    The other end of the uplink is `machine_link`, in the namespace of the descriptor `machine`;
    `mtu` is in bytes.

    Raise `RulesRefused` if the kernel rejects the rules; the previous rules stay.
    """
    rules = render(plan, vips, _chains())
    _nft("-f", "-", rules=rules)
    for name, value in _SYSCTLS.items():
        set_sysctl(name, value)
    with open_links() as links:
        balancers = {
            address
            for each in plan.interfaces
            if each.is_balancer
            for address in addresses_of(each)
        }
        links.set_loopback(balancers | set(vips))
        if links.index(UPLINK) is None:
            links.add_pair(UPLINK, machine_link, machine, mtu=mtu)
        uplink = links.set_up(UPLINK, GUEST)
        versions = {each.version for each in vips}
        if any(is_routed(plan, each) for each in plan.subnets):
            versions.add(6)
        internet: dict[Network, Address | None] = {_INTERNET[each]: None for each in versions}
        links.set_routes(uplink, internet, ROUTER)
        for network in (plan.cidr_ipv4, plan.cidr_ipv6):
            if network is not None:
                links.refuse_route(network)
        _set_routes_to(links, plan)
    return rules


def sources_of(plan: VpcPlan) -> Sequence[Address]:
    """Return the addresses from which load balancers send, at most one of each IP version.

    They are interface addresses, not VIPs.
    """
    first: dict[int, Address] = {}
    for each in sorted(plan.interfaces, key=lambda each: each.id):
        for address in addresses_of(each) if each.is_balancer else ():
            first.setdefault(address.version, address)
    return list(first.values())


def set_up_interface(links: Links, interface: InterfacePlan, sources: Sequence[Address]) -> None:
    """Set up the VPC's end of the link to an instance, with routes that have these `sources`."""
    index = links.set_up(link_of(interface.id), ROUTER)
    links.set_routes(index, _routes_to(interface, sources))


def _set_routes_to(links: Links, plan: VpcPlan) -> None:
    """Set the missing or changed routes to instances that have links."""
    sources, there, routes = sources_of(plan), links.indices(), links.routes()
    for each in plan.interfaces:
        index, wanted = there.get(link_of(each.id)), _routes_to(each, sources)
        if index is not None and routes.get(index) != wanted:
            links.set_routes(index, wanted)


def _routes_to(
    interface: InterfacePlan, sources: Sequence[Address]
) -> Mapping[Network, Address | None]:
    of_version = {each.version: each for each in sources}
    return {whole(each): of_version.get(each.version) for each in addresses_of(interface)}


def set_up_instance(links: Links, interface: InterfacePlan) -> None:
    """Set up `eth0` in the namespace of an instance: its addresses and default routes."""
    index = links.set_up("eth0", GUEST)
    for each in addresses_of(interface):
        links.add_address(index, each)
        links.add_route(index, _INTERNET[each.version], via=ROUTER)
    links.await_addresses(index)  # so that a program can send as soon as it starts


def answer_at(vip: Address, vips: Vips) -> None:
    """Answer at a VIP; `vips` are all VIPs of the VPC, including this one."""
    with open_links() as links:
        loopback, uplink = links.index("lo"), links.index(UPLINK)
        assert loopback is not None
        links.add_address(loopback, vip)
        if uplink is not None:
            links.add_route(uplink, _INTERNET[vip.version], via=ROUTER)
    _set_vips(vips)


def stop_answering_at(vip: Address, vips: Vips) -> None:
    """Stop answering at a VIP; `vips` are the remaining VIPs of the VPC."""
    _set_vips(vips)
    with open_links() as links:
        loopback = links.index("lo")
        assert loopback is not None
        links.delete_address(loopback, vip)


def addresses_of(interface: InterfacePlan) -> Sequence[Address]:
    """Return the addresses of an interface."""
    both = (interface.address_ipv4, interface.address_ipv6)
    return [each for each in both if each is not None]


def _set_vips(vips: Vips) -> None:
    """Load the rules of VIPs; a VIP whose interface has no chain yet waits for the next plan."""
    _nft("-f", "-", rules=render_vips(vips, _chains()))


def _chains() -> Sequence[str]:
    """Return the names of the chains that the table `TABLE` has in the kernel."""
    listed = json.loads(_nft("-j", "list", "chains", "inet"))["nftables"]
    of_table = [each["chain"] for each in listed if "chain" in each]
    return [each["name"] for each in of_table if f"inet {each['table']}" == TABLE]


def _nft(*arguments: str, rules: str = "") -> str:
    """Run `nft`; return its output. Raise `RulesRefused` if it fails."""
    ran = run_nft([program("nft") or "nft", *arguments], rules, _SECONDS)
    if ran.returncode != 0:
        raise RulesRefused(ran.stderr.strip() or f"nft ended with {ran.returncode}")
    return ran.stdout
