"""Links, addresses and routes in the network namespace of a thread.

The two ends of a link have the link-local addresses `ROUTER` and `GUEST`, the same on all links,
and routes of both IP versions go through them: IPv4 routes use the neighbour's IPv6 address (RFC
5549). So no end needs an address of a subnet, nor ARP.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from cloudcore.network.drivers.namespaces import set_sysctl

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

ROUTER: Final = "fe80::1"
"""The address of the end that routes: the machine's end of an uplink, the VPC's end of an
instance's link."""
GUEST: Final = "fe80::2"
"""The address of the other end."""
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_STATIC: Final = 4
"""RTPROT_STATIC: routes that are not the kernel's own."""
_BOOT: Final = 3
"""RTPROT_BOOT: the route to the other end of a link, which is never removed."""
_TENTATIVE: Final = 0x40
"""IFA_F_TENTATIVE (RFC 4862, section 5.4)."""
_MOMENT_SECONDS: Final = 10
_UNREACHABLE: Final = 7
_MAIN_TABLE: Final = 254
_SMALLEST_MTU: Final = 1280  # RFC 8200, section 5
_USUAL_MTU: Final = 1500


class Links:
    """The links of one namespace."""

    def __init__(self, netlink: Any) -> None:  # noqa: ANN401 - pyroute2 has no types
        self._netlink: Final = netlink

    def index(self, name: str) -> int | None:
        """Return the index of the link with this name, or None."""
        found = self._netlink.link_lookup(ifname=name)
        return found[0] if found else None

    def add_pair(
        self, name: str, peer: str, netns: int, *, mtu: int, mac: str | None = None
    ) -> None:
        """Add a pair of links: one here, its peer in the namespace of the descriptor `netns`."""
        other: dict[str, object] = {"ifname": peer, "net_ns_fd": netns, "mtu": mtu}
        if mac is not None:
            other["address"] = mac
        self._netlink.link("add", ifname=name, kind="veth", mtu=mtu, peer=other)

    def delete(self, name: str) -> None:
        """Delete a link, which also deletes its peer; do nothing if it is absent."""
        if (index := self.index(name)) is not None:
            self._netlink.link("del", index=index)

    def indices(self) -> Mapping[str, int]:
        """Map each link's name to its index."""
        return {each.get_attr("IFLA_IFNAME"): each["index"] for each in self._netlink.get_links()}

    def is_pair(self, name: str, mac: str, of: int) -> bool:
        """Return True if a link has the MAC address `mac`, and its peer has the index `of`.

        The index is the one in the peer's namespace.
        """
        index = self.index(name)
        if index is None:
            return False
        (found,) = self._netlink.get_links(index)
        return bool(found.get_attr("IFLA_ADDRESS") == mac and found.get_attr("IFLA_LINK") == of)

    def set_up(self, name: str, address: str) -> int:
        """Bring a link up with `address` as its only link-local address; return the link's index.

        The other end is configured as the only neighbour: otherwise, packets to other addresses
        would fill the machine's shared neighbour table with failed entries. Raise
        `FileNotFoundError` if there is no such link.
        """
        index = self.index(name)
        if index is None:
            raise FileNotFoundError(f"no link {name}")
        of_link = f"ipv6/conf/{name}"
        for setting, value in (
            ("disable_ipv6", 0),
            ("addr_gen_mode", 1),  # the kernel makes no address
            ("accept_ra", 0),
            ("accept_dad", 0),  # no detection of duplicates, so that it is usable at once
        ):
            set_sysctl(f"{of_link}/{setting}", value)
        self._netlink.addr("replace", index=index, address=address, prefixlen=128)
        self._netlink.link("set", index=index, state="up")
        other = whole(ip_address(GUEST if address == ROUTER else ROUTER))
        # With a metric of its own: else it would replace another link's route to the same address.
        self._netlink.route("replace", oif=index, proto=_BOOT, priority=index, **_to(other))
        return index

    def set_loopback(self, wanted: set[Address]) -> None:
        """Bring the loopback up with exactly these addresses besides its own."""
        index = self.index("lo")
        assert index is not None
        self._netlink.link("set", index=index, state="up")
        found = {ip_address(each.get_attr("IFA_ADDRESS")) for each in self._addresses(index)}
        had = {each for each in found if not each.is_loopback and not each.is_link_local}
        for address in had - wanted:
            self.delete_address(index, address)
        for address in wanted - had:
            self.add_address(index, address)
        self.await_addresses(index)

    def await_addresses(self, index: int) -> None:
        """Wait until no address of a link is tentative: nothing is sent from tentative addresses.

        Raise `TimeoutError` after ten seconds.
        """
        until = time.monotonic() + _MOMENT_SECONDS
        while any(each["flags"] & _TENTATIVE for each in self._addresses(index)):
            if time.monotonic() > until:
                raise TimeoutError("addresses are not ready")
            time.sleep(0.001)

    def add_address(self, index: int, address: Address) -> None:
        """Add an address to a link, as a network of one address."""
        self._netlink.addr("replace", index=index, **_whole(address))

    def delete_address(self, index: int, address: Address) -> None:
        """Delete an address of a link; do nothing if it is absent."""
        if any(
            ip_address(each.get_attr("IFA_ADDRESS")) == address for each in self._addresses(index)
        ):
            self._netlink.addr("del", index=index, **_whole(address))

    def set_routes(
        self, index: int, wanted: Mapping[Network, Address | None], via: str = GUEST
    ) -> None:
        """Make these networks the only static routes over a link; see `add_route`.

        `wanted` maps each network to its source address, or None.
        """
        for network in self._routes(index) - set(wanted):
            self.delete_route(index, network)
        for network, source in wanted.items():
            self.add_route(index, network, source, via)

    def add_route(
        self, index: int, network: Network, source: Address | None = None, via: str = GUEST
    ) -> None:
        """Route a network through `via`, the other end of a link; replace an existing route.

        Packets that this namespace itself sends have the source address `source`, if passed.
        """
        more: dict[str, object] = {} if source is None else {"prefsrc": str(source)}
        if network.version == 4:
            more["via"] = {"family": socket.AF_INET6, "addr": via}
        else:
            more["gateway"] = via
        self._netlink.route("replace", oif=index, proto=_STATIC, **_to(network), **more)

    def delete_route(self, index: int, network: Network) -> None:
        """Delete the route to a network over a link; do nothing if it is absent."""
        if network in self._routes(index):
            self._netlink.route("del", oif=index, **_to(network))

    def refuse_route(self, network: Network) -> None:
        """Reject packets to a network unless a more specific route exists."""
        self._netlink.route("replace", type=_UNREACHABLE, proto=_STATIC, **_to(network))

    def mtu_of_internet(self) -> int:
        """Return the MTU of the default route, in bytes; 1500 if there is no default route."""
        for family in (socket.AF_INET6, socket.AF_INET):
            for route in self._netlink.get_default_routes(family=family, table=_MAIN_TABLE):
                if (index := route.get_attr("RTA_OIF")) is not None:
                    (link,) = self._netlink.get_links(index)
                    return max(_SMALLEST_MTU, int(link.get_attr("IFLA_MTU")))
        return _USUAL_MTU

    def _addresses(self, index: int) -> Iterator[Any]:
        for each in self._netlink.get_addr(index=index):
            if each["index"] == index:
                yield each

    def _routes(self, index: int) -> set[Network]:
        return set(self.routes().get(index, {}))

    def routes(self) -> Mapping[int, Mapping[Network, Address | None]]:
        """Map the index of each link to its static routes: from network to source address."""
        found: defaultdict[int, dict[Network, Address | None]] = defaultdict(dict)
        for version, family in _FAMILIES.items():
            any_of = "0.0.0.0" if version == 4 else "::"  # noqa: S104 - a network
            for each in self._netlink.get_routes(family=family, table=_MAIN_TABLE):
                index, source = each.get_attr("RTA_OIF"), each.get_attr("RTA_PREFSRC")
                if index is not None and each["proto"] == _STATIC:
                    network = ip_network((each.get_attr("RTA_DST") or any_of, each["dst_len"]))
                    found[index][network] = None if source is None else ip_address(source)
        return found


@contextmanager
def open_links() -> Iterator[Links]:
    """Open the links of this thread's namespace."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - a tenth of a second that most processes spare

    with IPRoute() as netlink:
        yield Links(netlink)


def whole(address: Address) -> Network:
    """Return the network that consists of this one address."""
    return ip_network(address)


def _whole(address: Address) -> dict[str, object]:
    return {
        "family": _FAMILIES[address.version],
        "address": str(address),
        "prefixlen": address.max_prefixlen,
    }


def _to(network: Network) -> dict[str, object]:
    return {"family": _FAMILIES[network.version], "dst": str(network)}
