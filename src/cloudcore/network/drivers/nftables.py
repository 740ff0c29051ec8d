"""The driver that makes networks in this machine's kernel: namespaces, links, routes, rules.

Each VPC has a network namespace, which is its router, so two VPCs may have the same addresses. Each
instance has its own link to that namespace, and no neighbours, so all its packets pass the rules.
Another link, `uplink`, connects the namespace to the machine, which routes packets from the
internet to the namespace. Rules come first: no link in a namespace is up before they are in force.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeVar

from msgspec import structs

from cloudcore.errors import Unavailable
from cloudcore.network.driver import InterfacePlan, VpcPlan
from cloudcore.network.drivers import namespaces, router
from cloudcore.network.drivers.links import ROUTER, Address, Links, open_links, whole
from cloudcore.network.drivers.namespaces import HERE, sysctl, within
from cloudcore.network.drivers.nft_check import can_check, check_rules, program
from cloudcore.network.drivers.rules import UPLINK, is_routed, link_of, render, short
from cloudcore.network.drivers.vpc_files import VpcFiles
from cloudcore.nodes.node import DriverUnusable

T = TypeVar("T")
_FORWARDING: Final = (
    "net.ipv6.conf.all.forwarding=1 (and accept_ra=2 of a link that learns its routes by"
    " advertisements)"
)
_MOUNTS: Final = (
    "the mounts of the machine, or its namespaces are lost when it restarts: take ProtectSystem and"
    " all else that gives it mounts of its own out of its unit"
)


class Nftables:
    """Makes the networks of VPCs; it needs root."""

    def __init__(self, folder: Path) -> None:
        """Store the folder for the state of VPCs; two installs on a machine need separate ones."""
        self._files: Final = VpcFiles(folder)

    def check(self) -> None:
        """Check that this machine has everything necessary; raise `DriverUnusable` otherwise."""
        for is_there, words in (
            (os.geteuid() == 0, "needs root"),
            (program("nft") and program("unshare"), "needs nft (nftables) and unshare"),
            (sysctl("ipv6/conf/all/forwarding") is not None, "needs IPv6 of the kernel"),
            (sysctl("ipv4/ip_forward") == 1, "needs the sysctl net.ipv4.ip_forward=1"),
            (sysctl("ipv6/conf/all/forwarding") == 1, f"needs the sysctl {_FORWARDING}"),
            (_sees_all_mounts(), f"needs {_MOUNTS}"),
            (can_check(), "needs nf_tables and network namespaces of the kernel"),
        ):
            if not is_there:
                raise DriverUnusable(f"network_driver nftables {words}")
        try:
            namespaces.apart(_try)
        except Exception as error:
            words = "needs veth, nf_tables and conntrack of the kernel"
            raise DriverUnusable(f"network_driver nftables {words}: {error}") from error

    def refuse(self, plan: VpcPlan) -> None:
        """Check the rules of a plan, in a new namespace; raise `RulesRefused` if they are bad."""
        check_rules(render(plan))

    async def apply(self, plan: VpcPlan) -> None:
        """Carry out the plan of a VPC."""
        await self._files.run(self._apply, plan)

    async def attach(self, vpc_id: str, interface: InterfacePlan, netns: Path) -> None:
        """Move an interface into the network namespace of an instance, as its `eth0`."""
        await self._files.run(self._attach, vpc_id, interface, netns)

    async def detach(self, vpc_id: str, interface_id: str) -> None:
        """Remove an interface."""
        await self._files.run(self._detach, vpc_id, interface_id)

    async def add_vip(self, vpc_id: str, vip: str, interface_id: str | None = None) -> None:
        """Make a VPC answer at a VIP; raise `Unavailable` if its plan was not carried out yet."""
        await self._files.run(self._add_vip, vpc_id, ip_address(vip), interface_id)

    async def remove_vip(self, vpc_id: str, vip: str) -> None:
        """Stop answering at a VIP."""
        await self._files.run(self._remove_vip, vpc_id, ip_address(vip))

    def namespace_of(self, vpc_id: str) -> Path | None:
        """Return the network namespace of a VPC."""
        return _namespace(vpc_id)

    def has(self, vpc_id: str) -> bool:
        """Return True if the state file and the namespace of a VPC exist."""
        return self._files.has(vpc_id) and namespaces.is_there(_namespace(vpc_id))

    async def remove(self, vpc_id: str) -> None:
        """Remove everything of a VPC from this machine."""
        await self._files.run(self._remove, vpc_id)

    async def known(self) -> Sequence[str]:
        """Return the ids of this install's VPCs with anything on this machine."""
        return self._files.ids()

    def _apply(self, plan: VpcPlan) -> None:
        render(plan)  # raises before anything is made
        sources = [str(each) for each in router.sources_of(plan)]
        kept = structs.replace(self._files.kept(plan.id), sources=sources)
        self._files.keep(plan.id, kept)
        path, link = _namespace(plan.id), _machine_link(plan.id)
        namespaces.ensure(path)
        mtu = _links(Links.mtu_of_internet)
        if _links(lambda links: links.index(UPLINK), path) is None:
            # A leftover end of a link, whose other end is not in this namespace.
            _links(lambda links: links.delete(link))
        with HERE.open("rb") as machine:
            inside = partial(router.apply_plan, plan, kept.addresses, link, machine.fileno(), mtu)
            rules = within(path, inside)
        with open_links() as links:
            subnets = [each.cidr_ipv6 for each in plan.subnets if is_routed(plan, each)]
            wanted = [*filter(None, subnets), *map(whole, kept.addresses)]
            links.set_routes(links.set_up(link, ROUTER), dict.fromkeys(wanted))
        self._files.keep_rules(plan.id, rules)

    def _attach(self, vpc_id: str, interface: InterfacePlan, netns: Path) -> None:
        path, name, mac = _existing(vpc_id), link_of(interface.id), _mac(interface.id)
        sources = [ip_address(each) for each in self._files.kept(vpc_id).sources]
        index = _links(lambda links: links.index(name), path)
        if index is None or not _links(lambda links: links.is_pair("eth0", mac, index), netns):
            _links(lambda links: links.delete("eth0"), netns)
            mtu = _links(Links.mtu_of_internet)
            _links(lambda links: links.delete(name), path)
            with netns.open("rb") as instance:
                end = instance.fileno()
                _links(lambda links: links.add_pair(name, "eth0", end, mtu=mtu, mac=mac), path)
        _links(lambda links: router.set_up_interface(links, interface, sources), path)
        _links(lambda links: router.set_up_instance(links, interface), netns)

    def _detach(self, vpc_id: str, interface_id: str) -> None:
        path = _namespace(vpc_id)
        if namespaces.is_there(path):
            _links(lambda links: links.delete(link_of(interface_id)), path)

    def _add_vip(self, vpc_id: str, vip: Address, interface_id: str | None) -> None:
        path = _existing(vpc_id)
        self._files.keep_vip(vpc_id, vip, interface_id)
        vips = self._files.kept(vpc_id).addresses
        within(path, partial(router.answer_at, vip, vips))
        link = _machine_link(vpc_id)
        _links(lambda links: links.add_route(links.set_up(link, ROUTER), whole(vip)))

    def _remove_vip(self, vpc_id: str, vip: Address) -> None:
        self._files.forget_vip(vpc_id, vip)
        path = _namespace(vpc_id)
        if not namespaces.is_there(path):
            return
        with open_links() as links:
            index = links.index(_machine_link(vpc_id))
            if index is not None:
                links.delete_route(index, whole(vip))
        vips = self._files.kept(vpc_id).addresses
        within(path, partial(router.stop_answering_at, vip, vips))

    def _remove(self, vpc_id: str) -> None:
        path = _namespace(vpc_id)
        if namespaces.is_there(path):
            _links(_delete_all, path)
        namespaces.remove(path)
        _links(lambda links: links.delete(_machine_link(vpc_id)))
        self._files.forget(vpc_id)


def _namespace(vpc_id: str) -> Path:
    return namespaces.FOLDER / f"entrepot-{short(vpc_id)}"


def _sees_all_mounts() -> bool:
    """Return False if this process has a mount namespace of its own; True if that is unknown."""
    own, first = Path("/proc/self/ns/mnt"), Path("/proc/1/ns/mnt")
    try:
        return own.stat().st_ino == first.stat().st_ino
    except OSError:
        return True


def _existing(vpc_id: str) -> Path:
    """Return a VPC's namespace; raise `Unavailable` if its plan was not carried out yet."""
    path = _namespace(vpc_id)
    if not namespaces.is_there(path):
        raise Unavailable("the network of the VPC is not there yet")
    return path


def _machine_link(vpc_id: str) -> str:
    """Return the name of the machine's end of an uplink."""
    return f"vpc{short(vpc_id)}"


def _mac(interface_id: str) -> str:
    """Return the MAC address of an interface, derived from its id; it identifies the link."""
    return bytes((0x02, *bytes.fromhex(short(interface_id))[1:])).hex(":")  # locally administered


def _links(call: Callable[[Links], T], path: Path | None = None) -> T:
    """Call a function with the links of a namespace, by default the machine's."""

    def opened() -> T:
        with open_links() as links:
            return call(links)

    return opened() if path is None else within(path, opened)


def _delete_all(links: Links) -> None:
    for name in links.indices():
        if name != "lo":
            links.delete(name)


def _try() -> None:
    """Carry out an empty plan in a new namespace, to test what the driver needs from the kernel."""
    new = "00000000-0000-0000-0000-000000000000"
    with HERE.open("rb") as here:
        router.apply_plan(VpcPlan(new), {}, _machine_link(new), here.fileno(), 1500)
