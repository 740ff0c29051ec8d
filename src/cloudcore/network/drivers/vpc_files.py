"""State files of this machine's VPCs: their VIPs, their source addresses and their rules.

The file of a VPC is created before anything else of the VPC, and deleted last. So a VPC without a
file has nothing on this machine.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, Unpack

import msgspec
from msgspec import structs

from cloudcore.network.drivers.rules import Vips, short
from cloudcore.nodes.shim_driver import write_file

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Address = IPv4Address | IPv6Address


class VpcState(msgspec.Struct, frozen=True):
    """The stored state of a VPC."""

    vips: dict[str, str | None] = {}
    """The addresses where load balancers of the VPC listen, with interfaces as in `Vips`."""
    sources: list[str] = []
    """The addresses, at most one of each IP version, that programs in the VPC's namespace send
    from."""

    @property
    def addresses(self) -> Vips:
        """Return `vips`, with the addresses parsed."""
        return {ip_address(vip): interface for vip, interface in self.vips.items()}


class VpcFiles:
    """The files of all VPCs of a machine, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._threads: Final = ThreadPoolExecutor(2, "network")

    async def run(self, call: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
        """Call a function in a thread; only one such call at a time runs on this machine."""

        def locked() -> T:
            with self._locked():
                return call(*arguments)

        return await asyncio.get_running_loop().run_in_executor(self._threads, locked)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def kept(self, vpc_id: str) -> VpcState:
        """Return the state of a VPC; an empty state if its file is absent or unreadable."""
        try:
            return msgspec.json.decode(self._state(vpc_id).read_bytes(), type=VpcState)
        except (FileNotFoundError, msgspec.DecodeError):
            return VpcState()

    def keep(self, vpc_id: str, kept: VpcState) -> None:
        """Store the state of a VPC."""
        write_file(self._state(vpc_id), msgspec.json.encode(kept))

    def keep_vip(self, vpc_id: str, vip: Address, interface_id: str | None) -> None:
        """Store an address where load balancers of a VPC listen, and an interface as in `Vips`."""
        kept = self.kept(vpc_id)
        vips = kept.vips | {str(vip): interface_id}
        self.keep(vpc_id, structs.replace(kept, vips=vips))

    def forget_vip(self, vpc_id: str, vip: Address) -> None:
        """Store that a VPC's load balancers no longer listen at an address."""
        kept = self.kept(vpc_id)
        if str(vip) in kept.vips:
            vips = {each: of for each, of in kept.vips.items() if each != str(vip)}
            self.keep(vpc_id, structs.replace(kept, vips=vips))

    def keep_rules(self, vpc_id: str, rules: str) -> None:
        """Store the rules of a VPC, for people to read."""
        write_file(self.rules(vpc_id), rules.encode())

    def rules(self, vpc_id: str) -> Path:
        """Return the path of the file with the rules of a VPC."""
        return self._state(vpc_id).with_suffix(".nft")

    def has(self, vpc_id: str) -> bool:
        """Return True if the state file of a VPC exists."""
        return self._state(vpc_id).exists()

    def forget(self, vpc_id: str) -> None:
        """Delete the files of a VPC."""
        self.rules(vpc_id).unlink(missing_ok=True)
        self._state(vpc_id).unlink(missing_ok=True)

    def ids(self) -> Sequence[str]:
        """Return the ids of all VPCs that have files, sorted."""
        return sorted(each.stem for each in self._folder.glob("*.json"))

    def _state(self, vpc_id: str) -> Path:
        short(vpc_id)  # raises unless it is a UUID: it must not be a path
        return self._folder / f"{vpc_id}.json"
