"""Programs in processes that are forked from one which has loaded their modules: `tests.loader`.

A start of Python with our modules is mostly imports: a second of a processor for a server or a
worker of a test, a quarter for a command, two thousand times in all tests. Here each process of
pytest has one process that imports them once, and forks for each start. What it forks gets
arguments, environment, folder, standard streams and signals as any program, and runs a module as
``python -m`` does. At its end it waits for its threads, runs what `atexit` knows and flushes its
streams, but frees no objects.

When what is loaded, the memory that it takes, and what an interpreter says as it frees its objects
is not seen here: `test_command.py` and `test_serving_memory.py` of the integration tests start the
program itself.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Final

from tests.loaded_client import NUMBER, encoded

ROOT: Final = Path(__file__).resolve().parent.parent
_PATH: Final = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
_ENVIRONMENT: Final = dict(os.environ)
"""With which the process that forks is started; a test may change that of its own process."""
NETWORK: Final = Path("/proc/thread-self/ns/net")
"""Where this thread is, which may be a network of its test; so is what it starts."""
ENTREPOT: Final = "registry"
"""The module of the command."""
_OF_THE_START: Final = ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG", "TZ", "OPENSSL_", "SSL_")
"""Names of variables that begin so are read as a program starts, or is loaded."""

TRACES: Final = "PYTHONFAULTHANDLER"
"""Has a program say where its threads are when it is aborted; one that is forked begins to."""


@dataclass
class Program:
    """A process that was started: as much of `subprocess.Popen` as tests need."""

    pid: int
    _ended: int
    """The end of a pipe from which its exit status is read."""
    returncode: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def poll(self) -> int | None:
        """Return the exit status, as `subprocess.Popen` has it, or None while it runs."""
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status.

        Raises:
            subprocess.TimeoutExpired: it runs after so many seconds.

        """
        status = self._status(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return status

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _status(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and self._has_ended(timeout):
                told = os.read(self._ended, NUMBER.size)
                os.close(self._ended)
                self.returncode = NUMBER.unpack(told)[0] if told else -signal.SIGKILL
                assert told, "the process that forks has ended"
            return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        ready = select.poll()  # of any descriptor, also of large numbers
        ready.register(self._ended, select.POLLIN)
        return bool(ready.poll(None if timeout is None else timeout * 1000))


@dataclass
class Worker:
    """A module of the tests that runs as a process, whose output is read."""

    process: Program
    stdout: IO[str]

    def read(self) -> str:
        """Return the next line; the test's own time limit ends a wait in vain."""
        line = self.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        return line.rstrip("\n")

    def kill(self) -> str:
        """End it without a chance to do anything; return what it said and nobody has read."""
        if self.stdout.closed:
            return ""
        self.process.kill()
        with self.stdout:
            said = self.stdout.read()
        self.process.wait()
        return said


def start_worker(module: str, *arguments: str, stdin: bytes = b"") -> Worker:
    """Start a module of the tests, which may read `stdin` and stays until it is ended."""
    reading, writing = os.pipe()
    try:
        with tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            streams = (given.fileno(), writing, 2)
            process = start_loaded(module, arguments, program_environment(), streams)
    finally:
        os.close(writing)
    return Worker(process, os.fdopen(reading))


def run_loaded(
    module: str,
    arguments: Sequence[str],
    env: Mapping[str, str],
    stdin: str = "",
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a module with these arguments to its end, and return how it ended."""
    if not can_be_forked(env):
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(
            command,
            env=env,
            input=stdin,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin.encode())
        given.seek(0)
        streams = (given.fileno(), out.fileno(), err.fileno())
        started = start_loaded(module, arguments, env, streams)
        try:
            status = started.wait(timeout)
        except BaseException:
            started.kill()
            started.wait()
            raise
        shown = []
        for stream in (out, err):
            stream.seek(0)
            shown.append(stream.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess([module, *arguments], status, *shown)


def start_loaded(
    module: str,
    arguments: Sequence[str],
    env: Mapping[str, str],
    streams: tuple[int, int, int],
    cwd: Path | None = None,
    *,
    has_session: bool = False,
) -> Program:
    """Start a module, by default in the folder and the session of this process.

    Its standard `streams` are descriptors, which stay open here.
    """
    assert can_be_forked(env), "start the program itself"
    words = [module, *arguments]
    return _loader().start(words, env, streams, cwd or Path.cwd(), has_session=has_session)


def script_line(module: str) -> str:
    """Return the line of a shell's script that runs a module with the arguments of the script."""
    client = Path(__file__).with_name("loaded_client.py")
    return f'exec {sys.executable} -I -S {client} {_loader().address} {module} "$@"'


def program_environment() -> dict[str, str]:
    """Return the environment in which a program finds the tests and the registry."""
    return {**os.environ, "PYTHONPATH": _PATH}


def can_be_forked(env: Mapping[str, str]) -> bool:
    """Return True if a program of this environment is started as one of ours would be."""
    both = env.keys() | _ENVIRONMENT.keys()
    names = {each for each in both if each.startswith(_OF_THE_START)} - {"PYTHONPATH", TRACES}
    ours = (_PATH, str(ROOT / "src"), _ENVIRONMENT.get("PYTHONPATH"))  # of these sources
    return env.get("PYTHONPATH") in ours and all(
        env.get(each) == _ENVIRONMENT.get(each) for each in names
    )


class _Loader:
    """The process that has the modules loaded, seen from the tests."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="loaded-")
        self.address = Path(self._folder.name) / "socket"
        """Where `tests/loaded_client.py` asks it."""
        from tests.databases import planted  # noqa: PLC0415 - it imports this module

        data = planted(Path(self._folder.name) / "data")
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self.address))
            listener.listen(64)
            fds = [its.fileno(), listener.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.loader", *map(str, fds), str(data)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**_ENVIRONMENT, "PYTHONPATH": _PATH},
                pass_fds=fds,
                cwd=ROOT,
            )
        self._socket, self._owner = ours, os.getpid()
        atexit.register(self.close)

    def start(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        cwd: Path,
        *,
        has_session: bool,
    ) -> Program:
        """Start the module that is the first word, with the others as arguments."""
        reading, writing = os.pipe()
        request = encoded(words, env, str(cwd), has_session="yes" if has_session else "")
        try:
            with NETWORK.open("rb") as network:
                descriptors = [*streams, network.fileno(), writing]
                socket.send_fds(self._socket, [request], descriptors)
        finally:
            os.close(writing)
        pid = os.read(reading, NUMBER.size)
        assert pid, "the process that has the modules loaded has ended"
        return Program(NUMBER.unpack(pid)[0], reading)

    def close(self) -> None:
        """End it, though children of this process may have the socket; they do not end it."""
        if os.getpid() == self._owner:
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._process.wait()
            self._folder.cleanup()


_starting: Final = threading.Lock()


@cache
def _made_loader() -> _Loader:
    return _Loader()


def _loader() -> _Loader:
    with _starting:
        return _made_loader()
