"""The program of the keeper, which a driver starts in an instance's folder.

It reads `ORDER`, makes the root, the network and the sockets, and waits on `CONTROL` for one line a
connection: ``ready``, answered when all is made; ``go``, answered when the instance's program runs;
``stop SECONDS``, which ends it by SIGTERM and then SIGKILL; the connection is closed at the end.
What it knows stands in `STATE`, replaced by a rename.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from cloudcore.compute.keeper import network
from cloudcore.compute.keeper.commands import CommandFailed, run
from cloudcore.compute.keeper.launching import Program, start_by_bubblewrap, start_by_runc
from cloudcore.compute.keeper.metadata import serve_metadata
from cloudcore.compute.keeper.root import Root, mount_root
from cloudcore.compute.keeper.users import Users, bound_share, hold_users
from cloudcore.compute.metadata_server import MetadataService
from cloudcore.nodes.keeping import CONTROL, is_known, unix_listener
from cloudcore.nodes.loop import READ, Loop
from cloudcore.nodes.output import Output
from cloudcore.nodes.relays import MOST_RELAYED, Gate, serve_port

ORDER: Final = "order.json"
STATE: Final = "state.json"
PORTS: Final = "ports"
OUTPUT_BYTES_A_SECOND: Final = 4_000_000
"""What an instance writes faster waits: no bound of it counts what the keeper does with it."""
_CHUNK: Final = 65_536


def main() -> None:
    """Keep the instance of this folder until its program has ended."""
    os.umask(0o022)  # of the instance's own files; the folder is this user's alone
    order = json.loads(Path(ORDER).read_bytes())
    if not is_known():
        return
    keeper = Keeper(order)
    try:
        keeper.prepare()
    except (OSError, CommandFailed) as error:
        keeper.note(status="stopped", problem=str(error))
        return
    while not keeper.has_ended:
        keeper.loop.turn()
    keeper.finish()


class Keeper:
    """An instance: its order, its processes and its state."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.loop = Loop()
        self.has_ended = False
        self._order = order
        self._state: dict[str, Any] = {}
        # Before the processes of this namespace are all that /proc shows.
        self.note(status="starting", keeper=int(Path("/proc/self").readlink().name))
        self._control = unix_listener(CONTROL)
        self._output = Output()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._program: Program | None = None
        self._waiting: list[socket.socket] = []
        self._taken = 0
        """Bytes of output since the keeper rested last."""

    def note(self, **changes: object) -> None:
        """Tell what has changed to who reads the state."""
        self._state.update(changes)
        new = Path(f"{STATE}.new")
        new.write_text(json.dumps(self._state), "ascii")
        new.replace(STATE)

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
        self._listen()
        controls = Gate(self.loop, MOST_RELAYED)
        controls.listen(self._control, lambda accepted: self._obey(accepted, controls))
        woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.loop.watch(woken, READ, lambda _events: self._reap(woken))

    def finish(self) -> None:
        """Keep the last of the output, and tell that all is over."""
        self._read()
        self.note(status="stopped")

    def _obey(self, connection: socket.socket, gate: Gate) -> None:
        def take(_events: int) -> None:
            try:
                line = connection.recv(64).decode("ascii", "replace").split()
            except OSError:
                line = []
            if line[:1] == ["stop"]:
                self.loop.watch(connection, 0, take)
                self._waiting.append(connection)  # closed by the end of this process
                self._stop(float(line[1]))
                return
            if line == ["go"]:
                self._go()
            with contextlib.suppress(OSError):
                connection.send(b"done\n")
            self.loop.close(connection)
            gate.leave()

        self.loop.watch(connection, READ, take)

    def _go(self) -> None:
        if self._state["status"] != "starting":
            return
        try:
            self._program = self._launch()
        except (OSError, CommandFailed) as error:
            self._read()
            said = self._output.last_line.decode(errors="replace") or str(error)
            self.note(problem=said)
            self.has_ended = True
            return
        os.close(self._writer)
        self.note(status="running", started_at=time.time_ns() // 1000)

    def _launch(self) -> Program:
        argv, groups = self._order["launch"], self._order["groups"]
        if self._order["runtime"] == "runc":
            return start_by_runc(argv, self._writer)
        return start_by_bubblewrap(argv, self._writer, groups)

    def _stop(self, grace: float) -> None:
        program = self._program
        if program is None:
            self.has_ended = True
            return
        program.signal(signal.SIGTERM)
        kill_at = time.monotonic() + grace
        self.loop.at(self, kill_at, lambda: program.signal(signal.SIGKILL))

    def _reap(self, woken: int) -> None:
        """Wait for all children that have ended: this is the first process of a namespace."""
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        awaited = self._program and self._program.awaited
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == awaited:
                    code = os.waitstatus_to_exitcode(ended[1])
                    self.note(exit_code=code if code >= 0 else 128 - code)
                    self.has_ended = True

    def _listen(self) -> None:
        self.loop.watch(self._reader, READ, lambda _events: self._read())

    def _read(self) -> None:
        """Keep what there is of the output: some of it, or all if the program has ended."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reader, _CHUNK):
                self._output.write(data)
                if not self.has_ended:
                    self._rest_after(len(data))
                    return
            self.loop.watch(self._reader, 0, lambda _events: None)  # nobody has it open any more

    def _rest_after(self, count: int) -> None:
        """Take no more of the output for a while, if there was much of it."""
        self._taken += count
        if self._taken < _CHUNK:
            return
        until = time.monotonic() + self._taken / OUTPUT_BYTES_A_SECOND
        self._taken = 0
        self.loop.watch(self._reader, 0, lambda _events: None)
        self.loop.at(self._output, until, self._listen)
