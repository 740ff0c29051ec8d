"""Settings of what runs on machines: networks, load balancers, instances and databases."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final, Literal

from cloudcore.nodes.node import Node
from registry.settings.groups import MOST_PORT
from registry.settings.texts import SettingsError, listed

NetworkDriver = Literal["render", "nftables"]
BalancerDriver = Literal["embedded", "haproxy"]
ComputeDriver = Literal["off", "runc", "bubblewrap"]
DatabaseDriver = Literal["off", "bubblewrap"]
Network = IPv4Network | IPv6Network

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_NO_NAME: Final = re.compile(r"[^a-z0-9.-]+")
_PORTS: Final = re.compile(r"([1-9][0-9]{3,4})-([1-9][0-9]{3,4})")
_ULA: Final = IPv6Network("fc00::/7")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The drivers of networks, load balancers, instances and databases on a machine.

    A property raises `SettingsError` if its setting is malformed.
    """

    node_name: str = ""
    """Name of this machine, unique in the install and never changed; empty: its host name."""
    network_driver: NetworkDriver = "render"
    """Driver of networks: ``render`` only writes their rules to files; ``nftables``, which needs
    root, makes namespaces, links and rules in this machine's kernel."""
    network_ipv6_ranges: str = ""
    """Global IPv6 networks, separated by commas, that are routed to this machine: each VPC takes
    its own from them."""
    balancer_driver: BalancerDriver = "embedded"
    """Driver of load balancers: ``embedded``, or ``haproxy``, which must be installed."""
    balancer_vips: str = ""
    """Networks, separated by commas, with addresses for load balancers; empty: there are none."""
    balancer_targets: str = ""
    """Networks, separated by commas, that load balancers may connect to by address if
    `network_driver` is ``render``: they connect from this machine then, and a VPC may have any
    private network."""
    compute_driver: ComputeDriver = "off"
    """Driver of instances: ``off`` (none), ``runc``, which needs root, or ``bubblewrap``."""
    compute_first_uid: int = 1_000_000
    """First of 65,536 user ids of this machine for instances; nothing else may use them."""
    compute_disk_mb: int = 1024
    """MiB that an instance may write."""
    database_driver: DatabaseDriver = "off"
    """Driver of database servers: ``off`` (none), or ``bubblewrap``, as root or not."""
    database_address: str = "127.0.0.1"
    """Address of this machine on which its database servers listen: clients connect to it."""
    database_ports: str = "20000-20999"
    """First and last port for database servers on this machine; each server has one."""
    database_first_uid: int = 1_100_000
    """User id of the database server on the first port; each next port has the next user id, and
    nothing else may use them. Without root, servers run as the user of the service."""
    database_networks: str = ""
    """Networks, separated by commas, that registered database servers may be in, although they
    are not public."""

    @property
    def name(self) -> str:
        """Return the name of this machine."""
        return self.node_name or _host_name()

    def node(self, data: Path) -> Node:
        """Return this machine as a node, with its kinds of work; `data` is the data folder."""
        found = ["networks", "backups"]
        if self.vips:
            found.append("balancers")
        if self.compute_driver != "off":
            found.append("instances")
        if self.database_driver != "off":
            found.append("databases")
        return Node(self.name, data / "nodes" / self.name, tuple(found))

    @property
    def ipv6_ranges(self) -> Sequence[IPv6Network]:
        """Return the networks from which VPCs get their IPv6 ranges."""
        found: list[IPv6Network] = []
        for each in _networks("network_ipv6_ranges", self.network_ipv6_ranges):
            if not isinstance(each, IPv6Network) or each.overlaps(_ULA):
                raise SettingsError(f"network_ipv6_ranges: {each} is no global IPv6 network")
            found.append(each)
        return tuple(found)

    @property
    def vips(self) -> Sequence[Network]:
        """Return the networks from which load balancers get their addresses."""
        return _networks("balancer_vips", self.balancer_vips)

    @property
    def targets(self) -> Sequence[Network]:
        """Return the networks that load balancers may connect to from this machine."""
        return _networks("balancer_targets", self.balancer_targets)

    @property
    def database_range(self) -> tuple[int, int]:
        """Return the first and last port that database servers may use."""
        found = _PORTS.fullmatch(self.database_ports)
        first, last = (int(each) for each in found.groups()) if found else (1, 0)
        if not first <= last < MOST_PORT:  # the port after the last is for verifications
            raise SettingsError(
                "database_ports is a range such as 20000-20999, up to 65534, not"
                f" {self.database_ports!r}"
            )
        return first, last

    @property
    def registered_networks(self) -> Sequence[Network]:
        """Return the networks that registered database servers may be in."""
        return _networks("database_networks", self.database_networks)

    @property
    def problem(self) -> str:
        """Return a problem, with the setting's name before it, or an empty string."""
        if self.node_name and _NAME.fullmatch(self.node_name) is None:
            return f"node_name: {self.node_name!r} is no name of a-z 0-9 . -, at most 63"
        _ = self.ipv6_ranges, self.vips, self.targets
        _ = self.database_range, self.registered_networks
        if not _is_one_address(self.database_address):
            return f"database_address is one IP address, not {self.database_address!r}"
        return ""


def _is_one_address(text: str) -> bool:
    try:
        return not ip_address(text).is_unspecified
    except ValueError:
        return False


def _networks(name: str, text: str) -> Sequence[Network]:
    try:
        return tuple(map(ip_network, listed(text)))
    except ValueError as error:
        raise SettingsError(f"{name} lists networks such as 192.0.2.0/24: {error}") from None


@cache
def _host_name() -> str:
    """Return this machine's host name, changed to be valid as a node name, or ``localhost``."""
    found = _NO_NAME.sub("-", socket.gethostname().lower())[:63].strip(".-")
    return found or "localhost"
