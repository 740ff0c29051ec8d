"""The shim of a program: a process beside it that outlives the service, like containerd's shims.

The service starts `unshare` (`detached_process`); its child is the shim, the first process of a new
process namespace. The shim works in the program's folder: it reads `ORDER`, starts the program
confined, stores its output, and reads one line from each connection to `CONTROL`. ``stop SECONDS``
ends the program with a signal and later with SIGKILL; the connection closes when the shim ends. The
shim writes its state to `STATE`, which it replaces by a rename.

It imports only the standard library and the modules that shims share, as each program has a shim.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from cloudcore.nodes.detached_process import DetachedProcess
from cloudcore.nodes.output import Output
from cloudcore.nodes.relays import MOST_RELAYED, READ, Gate, Loop


class CommandFailed(Exception):
    """A program failed; the message is the last line of its output."""


def run(*argv: str, text: str = "", pass_fds: Sequence[int] = ()) -> None:
    """Run a program with `text` as its input; raise `CommandFailed` if it fails."""
    ended = subprocess.run(  # noqa: S603 - named by the shim and its driver
        argv,
        input=text.encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=pass_fds,
        check=False,
    )
    if ended.returncode:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        raise CommandFailed(lines[-1] if lines else f"{argv[0]} ended with {ended.returncode}")


CONTROL: Final = "control"
"""The socket in the folder on which the shim listens."""


class NoAnswer(Exception):
    """A shim runs, but did not answer in time."""


def is_known() -> bool:
    """Return True if this process's parent is the one that the service has recorded.

    If not, the service died before the kernel was told to kill this process together with its
    parent, so nothing would end this process.
    """
    parent = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[1]
    return Path("process").read_bytes().split()[0] == parent


def unix_listener(path: str) -> socket.socket:
    """Listen on a Unix socket in the working directory; a full path might be too long."""
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def ask(folder: Path, process: DetachedProcess, line: str, seconds: float) -> None:
    """Send a line to a shim, and wait for the shim's answer or its end.

    Raise `NoAnswer` if the shim does not answer in time, `OSError` if it does not listen.
    """
    end = time.monotonic() + seconds
    opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            while True:
                try:
                    connection.connect(f"/proc/self/fd/{opened}/{CONTROL}")
                    break
                except OSError:
                    if not process.is_alive:
                        return
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.005)
            connection.settimeout(max(0.1, end - time.monotonic()))
            connection.sendall(f"{line}\n".encode())
            connection.recv(64)
    except TimeoutError as error:
        raise NoAnswer("its shim does not answer") from error
    except ConnectionError:
        return  # it has ended
    finally:
        os.close(opened)


ORDER: Final = "order.json"
STATE: Final = "state.json"
SECCOMP_FILE: Final = "seccomp.bpf"
SECCOMP_FD: Final = 101
INFO_FD: Final = 103
"""The descriptor to which `bwrap` writes the id of the program's process."""
OOM_SCORE: Final = "500"
"""Programs are killed before the service when the machine has no memory left."""
OUTPUT_BYTES_A_SECOND: Final = 4_000_000
"""A program that writes faster must wait, because its limits do not include the shim's work."""
_CHUNK: Final = 65_536
Within = Callable[[], AbstractContextManager[None]]
"""The surroundings in which a program is started, such as a network namespace."""


class Program(NamedTuple):
    """A started program."""

    descriptor: int | None
    """A descriptor of the process, as its id may be reused later; None if the process has ended."""
    awaited: int
    """The id of the child of this process that ends with the program's exit code."""
    child: subprocess.Popen[bytes] | None = None
    """That child, if it was started by `Popen`. It is kept because a dropped `Popen` waits for its
    process itself, and the exit code would be lost."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the program has ended."""
        if self.descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, number)


class Shim:
    """A program, its processes and its state."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """The signal that asks the program to end, before SIGKILL."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Store `order`, the content of the file `ORDER`; start nothing yet."""
        self.loop = Loop()
        self.has_ended = False
        self._order = order
        self._state: dict[str, Any] = {}
        self._output = Output()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._program: Program | None = None
        self._waiting: list[socket.socket] = []
        self._taken = 0
        """Bytes of output since the shim rested last."""

    def prepare(self) -> None:
        """Prepare what the program needs, and call `watch`.

        `run_shim` stores a failure as the problem in the state.
        """
        raise NotImplementedError

    def launch(self) -> Program:
        """Start the program, with `_writer` as its output."""
        raise NotImplementedError

    def obey(self, word: str) -> None:
        """Carry out a command from the control socket, other than ``stop``."""

    def note(self, **changes: object) -> None:
        """Change these fields of the state, and replace the file of the state."""
        self._state.update(changes)
        new = Path(f"{STATE}.new")
        new.write_text(json.dumps(self._state), "ascii")
        new.replace(STATE)

    def watch(self, control: socket.socket) -> None:
        """Watch the output and the children, and accept connections to the control socket."""
        self._listen()
        controls = Gate(self.loop, MOST_RELAYED)
        controls.listen(control, lambda accepted: self._answer(accepted, controls))
        woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.loop.watch(woken, READ, lambda _events: self._reap(woken))

    def start(self) -> None:
        """Start the program; if that fails, store its output as the problem in the state."""
        try:
            self._program = self.launch()
        except (OSError, CommandFailed) as error:
            self._read()
            said = self._output.last_line.decode(errors="replace") or str(error)
            self.note(problem=said)
            self.has_ended = True
            return
        os.close(self._writer)
        self.note(status="running", started_at=time.time_ns() // 1000)

    def finish(self) -> None:
        """Store the rest of the output, and set the state to ``stopped``."""
        self._read()
        self.note(status="stopped")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program, if it runs."""
        if self._program is not None:
            self._program.signal(number)

    def _answer(self, connection: socket.socket, gate: Gate) -> None:
        def take(_events: int) -> None:
            try:
                line = connection.recv(64).decode("ascii", "replace").split()
            except OSError:
                line = []
            if line[:1] == ["stop"]:
                self.loop.ignore(connection)
                self._waiting.append(connection)  # closed by the end of this process
                self._stop(float(line[1]))
                return
            if len(line) == 1:
                self.obey(line[0])
            with contextlib.suppress(OSError):
                connection.send(b"done\n")
            self.loop.close(connection)
            gate.leave()

        self.loop.watch(connection, READ, take)

    def _stop(self, grace: float) -> None:
        if self._program is None:
            self.has_ended = True
            return
        self.signal(self.stop_signal)
        self.loop.at(self, time.monotonic() + grace, lambda: self.signal(signal.SIGKILL))

    def _reap(self, woken: int) -> None:
        """Reap all children that have ended, orphans of the process namespace among them."""
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
        """Store some of the available output, or all of it once the program has ended."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reader, _CHUNK):
                self._output.write(data)
                if not self.has_ended:
                    self._rest_after(len(data))
                    return
            self.loop.ignore(self._reader)  # nobody has it open any more

    def _rest_after(self, count: int) -> None:
        """After each `_CHUNK` bytes of output, rest for a while (`OUTPUT_BYTES_A_SECOND`)."""
        self._taken += count
        if self._taken < _CHUNK:
            return
        until = time.monotonic() + self._taken / OUTPUT_BYTES_A_SECOND
        self._taken = 0
        self.loop.ignore(self._reader)
        self.loop.at(self._output, until, self._listen)


def run_shim(make: Callable[[dict[str, Any]], Shim], umask: int) -> None:
    """Run the shim of this folder's program until the program has ended."""
    os.umask(umask)
    order = json.loads(Path(ORDER).read_bytes())
    if not is_known():
        return
    shim = make(order)
    try:
        shim.prepare()
    except (OSError, CommandFailed) as error:
        shim.note(status="stopped", problem=str(error))
        return
    while not shim.has_ended:
        shim.loop.turn()
    shim.finish()


def start_by_bubblewrap(
    argv: Sequence[str],
    output: int,
    groups: Sequence[str],
    *,
    files: Mapping[int, str],
    stdin: str = os.devnull,
    within: Within = nullcontext,
) -> Program:
    """Start a program with `bwrap` in control groups.

    `bwrap` waits for the program, and ends with the program's exit code. `files` maps descriptor
    numbers to files that `bwrap` reads.
    """
    opened = {number: os.open(name, os.O_RDONLY) for number, name in files.items()}
    info, opened[INFO_FD] = os.pipe2(os.O_CLOEXEC)
    for number, descriptor in opened.items():
        os.dup2(descriptor, number, inheritable=False)
        os.close(descriptor)
    try:
        monitor = start_process(
            argv, output, tuple(opened), groups=groups, stdin=stdin, within=within
        )
    finally:
        for number in opened:
            os.close(number)
    with os.fdopen(info, "rb") as lines:
        told = lines.read()
    if not told:
        raise CommandFailed(f"bwrap ended with {monitor.wait()}")
    program = Program(None, monitor.pid, monitor)
    with contextlib.suppress(ProcessLookupError):
        return program._replace(descriptor=os.pidfd_open(json.loads(told)["child-pid"]))
    return program


def start_process(
    argv: Sequence[str],
    output: int,
    pass_fds: Sequence[int],
    *,
    groups: Sequence[str] = (),
    stdin: str = os.devnull,
    within: Within = nullcontext,
) -> subprocess.Popen[bytes]:
    """Start a child, which the kernel kills early when memory is short, and which dumps no core.

    `output` is the descriptor for the child's output. Before it runs, the child enters the control
    groups `groups` (folders). It is started within the context that `within` returns.
    """

    def enter() -> None:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, "ascii")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for group in groups:
            Path(group, "cgroup.procs").write_text("0", "ascii")

    with within(), Path(stdin).open("rb") as opened:
        return subprocess.Popen(  # noqa: S603 - the driver's
            argv,
            stdin=opened,
            stdout=output,
            stderr=output,
            pass_fds=pass_fds,
            preexec_fn=enter,  # noqa: PLW1509 - this process has one thread
        )
