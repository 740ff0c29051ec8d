"""The program of the shim, which a driver starts in an instance's folder.

It makes the root, the network and the sockets, and then reads commands, one per line. It answers
``ready`` when all of these exist, and ``go`` when `runc` or `bwrap` has started the instance's
program. It also serves metadata to the instance.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from cloudcore.compute.metadata_server import MAX_CONNECTIONS, MetadataConversation, MetadataService
from cloudcore.compute.shim import namespaces
from cloudcore.compute.shim.namespaces import USERS_FD, Users, bound_share, hold_users
from cloudcore.compute.shim.root import Root, mount_root
from cloudcore.nodes.relays import MOST_RELAYED, READ, WRITE, Gate, Loop, serve_port
from cloudcore.nodes.shim import (
    CONTROL,
    SECCOMP_FD,
    SECCOMP_FILE,
    CommandFailed,
    Program,
    Shim,
    run,
    run_shim,
    start_by_bubblewrap,
    start_process,
    unix_listener,
)

OPTIONS_FILE: Final = "options"
OPTIONS_FD: Final = 102
PID_FILE: Final = "program.pid"
"""The file to which `runc` writes the id of the program's process."""


def _start_by_runc(argv: Sequence[str], output: int) -> Program:
    """Start a program with `runc run --detach`; the program becomes a child of this process."""
    runtime = start_process(argv, output, (USERS_FD,), within=namespaces.in_instance)
    if runtime.wait():
        raise CommandFailed(f"runc ended with {runtime.returncode}")
    pid = int(Path(PID_FILE).read_text("ascii"))
    return Program(os.pidfd_open(pid), pid)


_CHUNK: int = 32_768


def serve_metadata(loop: Loop, listener: socket.socket, service: MetadataService) -> None:
    """Serve the metadata of the instance at `listener`."""
    gate = Gate(loop, MAX_CONNECTIONS)
    gate.listen(listener, lambda accepted: _Answering(loop, accepted, service, gate).begin())


class _Answering:
    """One connection to the metadata service."""

    def __init__(
        self, loop: Loop, accepted: socket.socket, service: MetadataService, gate: Gate
    ) -> None:
        self._loop = loop
        self._socket = accepted
        self._gate = gate
        self._conversation = MetadataConversation(service)
        self._to_send = b""

    def begin(self) -> None:
        conversation = self._conversation
        if conversation.is_over and not self._to_send:
            self._close()
            return
        self._loop.at(self, conversation.deadline, self._close)
        self._loop.watch(self._socket, WRITE if self._to_send else READ, self._go_on)

    def _go_on(self, events: int) -> None:
        try:
            if events & WRITE:
                self._to_send = self._to_send[self._socket.send(self._to_send) :]
            elif received := self._socket.recv(_CHUNK):
                self._to_send = self._conversation.receive(received)
            else:
                self._close()
                return
        except BlockingIOError:
            return
        except OSError:
            self._close()
            return
        self.begin()

    def _close(self) -> None:
        self._loop.at(self, None, self._close)
        self._loop.close(self._socket)
        self._gate.leave()


PORTS: Final = "ports"


def main() -> None:
    """Run the shim of this folder's instance until its program has ended."""
    run_shim(InstanceShim, 0o022)  # for the instance's files; other users cannot enter the folder


class InstanceShim(Shim):
    """The shim of one instance: its instructions (``order.json``), its processes and its state."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Record this process's id now: later, /proc shows only the new namespace."""
        super().__init__(order)
        self.note(status="starting", shim=int(Path("/proc/self").readlink().name))
        self._control = unix_listener(CONTROL)

    def prepare(self) -> None:
        """Make everything that the program needs: root, network and sockets."""
        Path(self._order["shims"], "cgroup.procs").write_text("0", "ascii")
        run("mount", "-t", "proc", "proc", "/proc")
        mount_root(Root(**self._order["root"]))
        if self._order["runtime"] == "runc":
            hold_users(Users(*self._order["users"]))
        else:
            bound_share()
        namespaces.separate()
        serve_metadata(self.loop, namespaces.metadata_listener(), MetadataService(Path()))
        Path(PORTS).mkdir(exist_ok=True)
        gate = Gate(self.loop, MOST_RELAYED)
        for port in self._order["ports"]:
            listener = unix_listener(f"{PORTS}/{port}")
            serve_port(self.loop, gate, listener, partial(namespaces.port_of_instance, port))
        self.watch(self._control)

    def launch(self) -> Program:
        """Start the instance's program."""
        argv = self._order["launch"]
        if self._order["runtime"] == "runc":
            return _start_by_runc(argv, self._writer)
        groups, files = self._order["groups"], {SECCOMP_FD: SECCOMP_FILE, OPTIONS_FD: OPTIONS_FILE}
        inside = namespaces.in_instance
        return start_by_bubblewrap(argv, self._writer, groups, files=files, within=inside)

    def obey(self, word: str) -> None:
        """At the word ``go``, start the program unless it has been started; ignore other words."""
        if word == "go" and self._state["status"] == "starting":
            self.start()
