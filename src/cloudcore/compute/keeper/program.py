"""The program of the keeper, which a driver starts in an instance's folder.

It makes the root, the network and the sockets before it takes lines. ``ready`` is answered when all
is made, ``go`` when the instance's program runs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from cloudcore.compute.keeper import network
from cloudcore.compute.keeper.launching import start_by_runc, start_in_instance
from cloudcore.compute.keeper.metadata import serve_metadata
from cloudcore.compute.keeper.root import Root, mount_root
from cloudcore.compute.keeper.users import Users, bound_share, hold_users
from cloudcore.compute.metadata_server import MetadataService
from cloudcore.nodes.keeper import Keeper, Program, keep
from cloudcore.nodes.keeper_commands import run
from cloudcore.nodes.keeping import CONTROL, unix_listener
from cloudcore.nodes.relays import MOST_RELAYED, Gate, serve_port

PORTS: Final = "ports"


def main() -> None:
    """Keep the instance of this folder until its program has ended."""
    keep(InstanceKeeper, 0o022)  # of the instance's own files; the folder is this user's alone


class InstanceKeeper(Keeper):
    """An instance: its order, its processes and its state."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Note who keeps it, before the processes of this namespace are all that /proc shows."""
        super().__init__(order)
        self.note(status="starting", keeper=int(Path("/proc/self").readlink().name))
        self._control = unix_listener(CONTROL)

    def prepare(self) -> None:
        """Make all that the program will have."""
        Path(self._order["keepers"], "cgroup.procs").write_text("0", "ascii")
        run("mount", "-t", "proc", "proc", "/proc")
        mount_root(Root(**self._order["root"]))
        if self._order["runtime"] == "runc":
            hold_users(Users(*self._order["users"]))
        else:
            bound_share()
        network.separate()
        serve_metadata(self.loop, network.metadata_listener(), MetadataService(Path()))
        Path(PORTS).mkdir(exist_ok=True)
        gate = Gate(self.loop, MOST_RELAYED)
        for port in self._order["ports"]:
            listener = unix_listener(f"{PORTS}/{port}")
            serve_port(self.loop, gate, listener, partial(network.port_of_instance, port))
        self.watch(self._control)

    def launch(self) -> Program:
        """Start the instance's program."""
        argv = self._order["launch"]
        if self._order["runtime"] == "runc":
            return start_by_runc(argv, self._writer)
        return start_in_instance(argv, self._writer, self._order["groups"])

    def obey(self, word: str) -> None:
        """Let the program run, once."""
        if word == "go" and self._state["status"] == "starting":
            self.start()
