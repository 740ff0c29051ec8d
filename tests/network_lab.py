"""A machine and an internet, each a network namespace, for tests of networks in the kernel.

The test itself is on the machine: its main thread is in that namespace, and so is all that it
starts. Each socket is made in the namespace of the host that has it.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from ipaddress import IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final

from cloudcore.network.driver import InterfacePlan, VpcPlan
from cloudcore.network.drivers import namespaces
from cloudcore.network.drivers.links import GUEST, ROUTER, open_links
from cloudcore.network.drivers.namespaces import FOLDER, set_sysctl, within
from cloudcore.network.drivers.nft_check import can_check
from cloudcore.network.drivers.nftables import Nftables
from cloudcore.network.drivers.rules import UPLINK, short
from tests.tools import missing, require_tool

INTERNET_ADDRESS: Final = "2600::2"
"""Of the host in the internet."""
INTERNET_IPV4: Final = "198.51.100.2"
MACHINE_ADDRESS: Final = "2600::1"
OPEN: Final = {"tcp": "answers", "udp": "answers", "ping": "answers"}
CLOSED: Final = {"tcp": "nothing", "udp": "nothing", "ping": "nothing"}
PATIENCE: Final = 20.0
"""Seconds that a packet may take on a machine under load."""
GLANCE: Final = 0.15
"""Seconds in which one that passes is there: those of veth pass while they are sent."""
_ECHO_REQUEST: Final = 128  # RFC 4443, section 4
_ECHO_REPLY: Final = 129


class Lab:
    """What a test has: a driver, the machine that it works on, and the internet."""

    def __init__(self, folder: Path, machine: Path, internet: Path) -> None:
        self.folder: Final = folder
        self.machine: Final = machine
        self.internet: Final = internet
        self.driver: Final = Nftables(folder)
        self._hosts: list[Path] = []
        self._named: set[str] = set()

    async def add(self, vpc: VpcPlan, interface: InterfacePlan) -> Path:
        """Return the namespace of a new instance that has an interface."""
        host = self.host()
        self.router(vpc)
        await self.driver.attach(vpc.id, interface, host)
        return host

    async def begin(self, vpc: VpcPlan, interface: InterfacePlan) -> Path:
        """Apply a plan, and return the namespace of a new instance that has an interface."""
        await self.driver.apply(vpc)
        return await self.add(vpc, interface)

    async def begin_all(self, vpc: VpcPlan) -> list[Path]:
        """Apply a plan, and return the namespaces of new instances, one of each interface."""
        await self.driver.apply(vpc)
        return [await self.add(vpc, each) for each in vpc.interfaces]

    def host(self) -> Path:
        """Return a new namespace, with nothing but its loopback."""
        host = FOLDER / f"lab-{secrets.token_hex(6)}"
        namespaces.ensure(host)
        self._hosts.append(host)
        return host

    def router(self, vpc: VpcPlan) -> Path:
        """Return the namespace of a VPC."""
        found = self.driver.namespace_of(vpc.id)
        assert found is not None
        self._named.add(found.name)
        return found

    def force_routes(self, vpc: VpcPlan) -> None:
        """Route all between a VPC and the internet, so that its rules alone close it."""
        subnets = [each.cidr_ipv6 for each in vpc.subnets if each.cidr_ipv6 is not None]
        for subnet in subnets:
            within(self.machine, partial(_route, f"vpc{short(vpc.id)}", subnet, GUEST))
        within(self.router(vpc), partial(_route, UPLINK, IPv6Network("::/0"), ROUTER))

    def give_address(self, host: Path, address: str, link: str = "eth0") -> None:
        """Let a host take an address that is not its own."""

        def take() -> None:
            with open_links() as links:
                links.add_address(socket.if_nametoindex(link), ip_address(address))
                links.await_addresses(socket.if_nametoindex(link))

        within(host, take)

    def narrow_internet(self, mtu: int) -> None:
        """Let the link of the machine to the internet take smaller packets."""
        within(self.machine, lambda: _run("ip", "link", "set", "wan", "mtu", f"{mtu:d}"))

    def meddle(self, vpc: VpcPlan) -> None:
        """Undo what there is of a VPC as somebody with root could: rules, links and routes."""

        def undo() -> None:
            _run("nft", "flush", "ruleset")
            _run("ip", "link", "set", UPLINK, "down")
            for version in ("-4", "-6"):
                _run("ip", version, "route", "flush", "table", "main")

        within(self.router(vpc), undo)
        within(self.machine, lambda: _run("ip", "link", "delete", f"vpc{short(vpc.id)}"))

    def check_ways(
        self, host: Path, interface: InterfacePlan, *, out: bool, into: bool = False
    ) -> None:
        """Check if an instance reaches the internet, and if it is reached from there by IPv6."""
        found = reach(host, self.internet, INTERNET_ADDRESS, hopes=out)
        assert found == (OPEN if out else CLOSED)
        found = reach(self.internet, host, str(interface.address_ipv6), hopes=into)
        assert found == (OPEN if into else CLOSED)

    def ruleset(self, vpc: VpcPlan) -> str:
        """Return all rules in the namespace of a VPC."""
        return within(self.router(vpc), lambda: _run("nft", "list", "ruleset"))

    def addresses(self, host: Path) -> list[str]:
        """Return all addresses of a host."""
        return within(host, lambda: _run("ip", "-o", "address")).splitlines()

    def neighbours(self, host: Path) -> set[str]:
        """Return the addresses of IPv6 that a host has asked its links for."""
        listed = within(host, lambda: _run("ip", "-6", "neighbour"))
        return {line.split()[0] for line in listed.splitlines()}

    def leads_to(self, host: Path, neighbour: str, link: str) -> bool:
        """Return True if a neighbour is at the other end of a link, and not behind a router."""
        asked = ("ip", "-6", "route", "get", neighbour, "oif", link)
        return " via " not in within(host, lambda: _run(*asked))

    def census(self) -> tuple[set[str], list[str]]:
        """Return the namespaces of this test's VPCs, and the links of the machine."""
        named = {each.name for each in FOLDER.iterdir() if each.name.startswith("entrepot-")}
        links = self.addresses(self.machine)
        return named & self._named, links

    def forget_hosts(self) -> None:
        """Take all instances away."""
        while self._hosts:
            namespaces.remove(self._hosts.pop())

    async def close(self) -> None:
        """Take away what the test has made."""
        for each in await self.driver.known():
            await self.driver.remove(each)
        for host in (*self._hosts, self.machine, self.internet):
            namespaces.remove(host)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _route(link: str, network: IPv6Network, via: str) -> None:
    with open_links() as links:
        links.add_route(socket.if_nametoindex(link), network, via=via)


@asynccontextmanager
async def open_lab(folder: Path) -> AsyncIterator[Lab]:
    """Have a machine, where the test is meanwhile, and an internet."""
    require_tool("nft")
    if os.geteuid() != 0:
        missing("root, who may make network namespaces")
    if not can_check():
        missing("network namespaces and nftables in the kernel")
    tag = secrets.token_hex(6)
    machine, internet = FOLDER / f"lab-machine-{tag}", FOLDER / f"lab-internet-{tag}"
    namespaces.ensure(machine)
    namespaces.ensure(internet)
    made = Lab(folder, machine, internet)
    try:
        within(machine, partial(_connect, internet))
        within(internet, partial(_set_up, GUEST, ROUTER, (INTERNET_ADDRESS, INTERNET_IPV4)))
        for each in (machine, internet):
            within(each, _await)
        with thread_in(machine):
            try:
                yield made
            finally:
                await made.close()
    finally:
        for each in (machine, internet):
            namespaces.remove(each)


def _connect(internet: Path) -> None:
    """Make the machine forward, with a link to the internet."""
    for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        set_sysctl(name, 1)
    with internet.open("rb") as other, open_links() as links:
        links.add_pair("wan", "wan", other.fileno(), mtu=1500)
        links.set_loopback(set())
    _set_up(ROUTER, GUEST, (MACHINE_ADDRESS,))


def _set_up(own: str, other: str, addresses: tuple[str, ...]) -> None:
    """Set up an end of the link, which leads to the whole internet from both."""
    with open_links() as links:
        index = links.set_up("wan", own)
        for each in addresses:
            links.add_address(index, ip_address(each))
        for network in ("0.0.0.0/0", "::/0"):
            links.add_route(index, ip_network(network), via=other)


def _await() -> None:
    with open_links() as links:
        links.await_addresses(socket.if_nametoindex("wan"))


@contextmanager
def thread_in(machine: Path) -> Iterator[None]:
    """Have this thread be in a namespace."""
    with Path("/proc/thread-self/ns/net").open("rb") as before, machine.open("rb") as there:
        namespaces.enter(there.fileno())
        try:
            yield
        finally:
            namespaces.enter(before.fileno())


def socket_in(host: Path, kind: socket.SocketKind, address: str, proto: int = 0) -> socket.socket:
    """Return a socket of a host for an address of this version."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return within(host, lambda: socket.socket(family, kind, proto))


def reach(source: Path, target: Path, to: str, *, hopes: bool) -> Mapping[str, str]:
    """Return what happens to each kind of beginning: it answers, arrives, or nothing.

    One that hopes waits for what should come.
    """
    wait = PATIENCE if hopes else GLANCE
    kinds = {"tcp": tcp, "udp": udp} | ({"ping": ping} if ":" in to else {})
    return {name: begin(source, target, to, wait) for name, begin in kinds.items()}


def tcp(source: Path, target: Path, to: str, wait: float = PATIENCE, port: int = 0) -> str:
    """Connect, and have a byte come and go."""
    any_address = "::" if ":" in to else "0.0.0.0"
    with socket_in(target, socket.SOCK_STREAM, to) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((any_address, port))
        server.listen()
        with socket_in(source, socket.SOCK_STREAM, to) as client:
            client.settimeout(wait)
            try:
                client.connect((to, server.getsockname()[1]))
            except OSError:
                return "nothing"
            other, _ = server.accept()
            with other:
                other.settimeout(wait)
                client.sendall(b"?")
                assert other.recv(1) == b"?"
                other.sendall(b"!")
                return "answers" if client.recv(1) == b"!" else "arrives"


def udp(
    source: Path,
    target: Path,
    to: str,
    wait: float = PATIENCE,
    port: int = 0,
    sender: str | None = None,
) -> str:
    """Send a datagram, and another one back."""
    any_address = "::" if ":" in to else "0.0.0.0"
    with (
        socket_in(target, socket.SOCK_DGRAM, to) as server,
        socket_in(source, socket.SOCK_DGRAM, to) as client,
    ):
        server.bind((any_address, port))
        server.settimeout(wait)
        client.settimeout(wait)
        if sender is not None:
            client.bind((sender, 0))
        try:
            client.connect((to, server.getsockname()[1]))
            client.send(b"?")
            _, address = server.recvfrom(1)
        except OSError:
            return "nothing"
        try:
            server.sendto(b"!", address)
            return "answers" if client.recv(1) == b"!" else "arrives"
        except OSError:
            return "arrives"


def ping(source: Path, target: Path, to: str, wait: float = PATIENCE) -> str:
    """Send an echo request of ICMPv6."""
    tag, flow = secrets.token_bytes(8), secrets.randbits(16)
    with icmp(source, to) as client, icmp(target, to) as server:
        request = struct.pack("!BBHHH", _ECHO_REQUEST, 0, 0, flow, 1) + tag
        with suppress(OSError):  # no route
            client.sendto(request, (to, 0))
        if not await_icmp(server, _ECHO_REQUEST, tag, wait):
            return "nothing"
        return "answers" if await_icmp(client, _ECHO_REPLY, tag, wait) else "arrives"


def icmp(host: Path, to: str) -> socket.socket:
    """Return a socket that gets all messages of ICMPv6."""
    return socket_in(host, socket.SOCK_RAW, to, socket.getprotobyname("ipv6-icmp"))


def next_icmp(receiver: socket.socket, kind: int) -> bytes:
    """Return the next message of a kind."""
    receiver.settimeout(PATIENCE)
    while (message := receiver.recv(65536))[0] != kind:
        pass
    return message


def await_icmp(receiver: socket.socket, kind: int, part: bytes, wait: float = PATIENCE) -> bool:
    """Return True when a message comes that has a part."""
    while select.select([receiver], [], [], wait)[0]:
        message = receiver.recv(65536)
        if message[0] == kind and part in message:
            return True
    return False


class Stream:
    """A connection that never rests: bytes go one way, and each is seen to come."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.sent = 0
        self.received = 0
        self._client = client
        self._server = server
        self._ends = threading.Event()
        self._more = threading.Condition()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]

    def start(self) -> None:
        """Begin."""
        for each in self._threads:
            each.start()

    def await_more_than(self, received: int) -> None:
        """Wait until more has come."""
        with self._more:
            assert self._more.wait_for(lambda: self.received > received, PATIENCE)

    def end(self) -> None:
        """End, when all has come that was sent."""
        self._ends.set()
        for each in self._threads:
            each.join()

    def _send(self) -> None:
        while not self._ends.is_set():
            self.sent += self._client.send(b"x" * 4096)
        self._client.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        while got := len(self._server.recv(65536)):
            with self._more:
                self.received += got
                self._more.notify_all()


@contextmanager
def streaming(source: Path, target: Path, to: str) -> Iterator[Stream]:
    """Have a stream between two hosts in the block."""
    with (
        socket_in(target, socket.SOCK_STREAM, to) as listener,
        socket_in(source, socket.SOCK_STREAM, to) as client,
    ):
        listener.bind((to, 0))
        listener.listen()
        client.settimeout(PATIENCE)
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        with server:
            server.settimeout(PATIENCE)
            stream = Stream(client, server)
            stream.start()
            try:
                yield stream
            finally:
                stream.end()
