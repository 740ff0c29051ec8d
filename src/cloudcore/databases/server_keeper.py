"""The keeper of a database server: the process beside it, which outlives the service.

It reads `ORDER`, gives itself a network of its own, starts the program confined, and relays what
the machine's listener accepts to the server's own loopback. On its socket it takes one line a
connection: ``stop SECONDS``, which ends the program by SIGINT (a fast shutdown) and then SIGKILL,
and ``reload``. What it knows stands in `STATE`, replaced by a rename.

It imports the standard library and what keepers share alone, as each server has one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from cloudcore.nodes.keeping import CONTROL, is_known, unix_listener
from cloudcore.nodes.loop import READ, Loop
from cloudcore.nodes.output import Output
from cloudcore.nodes.relays import Gate, serve_port

ORDER: Final = "order.json"
STATE: Final = "state.json"
INPUT: Final = "input"
SECCOMP_FILE: Final = "seccomp.bpf"
SECCOMP_FD: Final = 101
INFO_FD: Final = 103
"""Where `bwrap` tells the id of the program's process."""
_OOM_SCORE: Final = "500"
"""Servers are killed before the service when the machine itself has no memory left."""
_CONTROLS: Final = 8
_CHUNK: Final = 65_536
_OUTPUT_BYTES_A_SECOND: Final = 4_000_000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1


def main() -> None:
    """Keep the program of this folder until it has ended."""
    os.umask(0o077)
    order = json.loads(Path(ORDER).read_bytes())
    if not is_known():
        return
    keeper = ServerKeeper(order)
    try:
        keeper.begin()
    except (OSError, subprocess.CalledProcessError) as error:
        keeper.note(problem=str(error))
        return
    while not keeper.has_ended:
        keeper.loop.turn()
    keeper.finish()


class ServerKeeper:
    """A server: its order, its processes and its state."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.loop = Loop()
        self.has_ended = False
        self._order = order
        self._state: dict[str, Any] = {}
        self._output = Output()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._program: int | None = None
        """A descriptor of its process, as none has its id later."""
        self._monitor = 0
        self._waiting: list[socket.socket] = []

    def note(self, **changes: object) -> None:
        """Tell what has changed to who reads the state."""
        self._state.update(changes)
        new = Path(f"{STATE}.new")
        new.write_text(json.dumps(self._state), "ascii")
        new.replace(STATE)

    def begin(self) -> None:
        """Start the program, then take what is for it."""
        # Its own processes: without them, nobody may mount others below (mount_namespaces(7)).
        subprocess.run(("mount", "-t", "proc", "proc", "/proc"), check=True)  # noqa: S607 - PATH is ours
        _loopback_up()
        controls = Gate(self.loop, _CONTROLS)
        controls.listen(unix_listener(CONTROL), lambda accepted: self._obey(accepted, controls))
        self._listen()
        woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.loop.watch(woken, READ, lambda _events: self._reap(woken))
        listener = self._order["listener"]
        self._launch()
        os.close(self._writer)
        self.note(started_at=time.time_ns() // 1000)
        if listener is not None:
            accepting = socket.socket(fileno=listener)
            gate = Gate(self.loop, self._order["most"])
            serve_port(self.loop, gate, accepting, self._dial)

    def finish(self) -> None:
        """Keep the last of the output."""
        self._read()

    def _dial(self) -> socket.socket:
        made = socket.socket()
        made.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            made.connect(("127.0.0.1", self._order["port"]))
        return made

    def _launch(self) -> None:
        info, told = os.pipe2(os.O_CLOEXEC)
        opened = {SECCOMP_FD: os.open(SECCOMP_FILE, os.O_RDONLY), INFO_FD: told}
        for number, descriptor in opened.items():
            os.dup2(descriptor, number, inheritable=False)
            os.close(descriptor)
        try:
            with Path(INPUT if self._order["has_input"] else os.devnull).open("rb") as stdin:
                monitor = subprocess.Popen(  # noqa: S603 - the driver's
                    self._order["launch"],
                    stdin=stdin,
                    stdout=self._writer,
                    stderr=self._writer,
                    pass_fds=tuple(opened),
                    preexec_fn=self._enter,  # noqa: PLW1509 - this process has one thread
                )
        finally:
            for number in opened:
                os.close(number)
        self._monitor = monitor.pid
        with os.fdopen(info, "rb") as lines:
            said = lines.read()
        with contextlib.suppress(ValueError, KeyError, ProcessLookupError):
            self._program = os.pidfd_open(json.loads(said)["child-pid"])

    def _enter(self) -> None:
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, "ascii")
        for group in self._order["groups"]:
            Path(group, "cgroup.procs").write_text("0", "ascii")

    def _obey(self, connection: socket.socket, gate: Gate) -> None:
        def take(_events: int) -> None:
            try:
                line = connection.recv(64).decode("ascii", "replace").split()
            except OSError:
                line = []
            if line[:1] == ["stop"]:
                self.loop.watch(connection, 0, take)
                self._waiting.append(connection)  # closed by the end of this process
                self._signal(signal.SIGINT)
                kill_at = time.monotonic() + float(line[1])
                self.loop.at(self, kill_at, lambda: self._signal(signal.SIGKILL))
                return
            if line == ["reload"]:
                self._signal(signal.SIGHUP)
            with contextlib.suppress(OSError):
                connection.send(b"done\n")
            self.loop.close(connection)
            gate.leave()

        self.loop.watch(connection, READ, take)

    def _signal(self, number: signal.Signals) -> None:
        if self._program is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._program, number)

    def _reap(self, woken: int) -> None:
        """Wait for all children that have ended: this is the first process of a namespace."""
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._monitor:
                    self.note(exit_code=os.waitstatus_to_exitcode(ended[1]))
                    self.has_ended = True

    def _listen(self) -> None:
        self.loop.watch(self._reader, READ, lambda _events: self._read())

    def _read(self) -> None:
        """Keep what there is of the output: some of it, or all if the program has ended."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reader, _CHUNK):
                self._output.write(data)
                if not self.has_ended:
                    # No bound of the server counts what this process does: it takes so much alone.
                    self.loop.watch(self._reader, 0, lambda _events: None)
                    pause = len(data) / _OUTPUT_BYTES_A_SECOND
                    self.loop.at(self._output, time.monotonic() + pause, self._listen)
                    return
            self.loop.watch(self._reader, 0, lambda _events: None)  # nobody has it open any more


def _loopback_up() -> None:
    """Let the loopback of this namespace work (netdevice(7))."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
