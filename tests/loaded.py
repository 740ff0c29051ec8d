"""Programs in processes that are forked from one which has loaded their modules.

A start of Python with our modules is mostly imports: a second of a processor for a server or a
worker of a test, a quarter for a command, two thousand times in all tests. Here each process of
pytest has one process that imports them once, and forks for each start. What it forks gets
arguments, environment, folder, standard streams and signals as any program, runs a module as
``python -m`` does, and ends as the interpreter ends.

When what is loaded, and the memory that it takes, is not seen here: `test_command.py` and
`test_serving_memory.py` of the integration tests start the program itself.
"""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import gc
import json
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
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import IO, Any, Final, NoReturn
from unittest.mock import patch

from tests.loaded_client import NUMBER

ROOT: Final = Path(__file__).resolve().parent.parent
_PATH: Final = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
_LARGEST_REQUEST: Final = 1 << 17
_DESCRIPTORS: Final = 5
"""Of a request: standard streams, network namespace, and the pipe for what becomes of it."""
_ENVIRONMENT: Final = dict(os.environ)
"""With which the process that forks is started; a test may change that of its own process."""
_NETWORK: Final = Path("/proc/thread-self/ns/net")
"""Where this thread is, which may be a network of its test; so is what it starts."""
ENTREPOT: Final = "registry"
"""The module of the command."""
_SERVERS: Final = (
    *(
        "registry.cli.server.serve",
        "registry.cli.server.dev",
        "registry.composition.serve",
        "uvicorn.server",
    ),
    *("cloudcore.db.sqlite", "cloudcore.db.postgresql"),
)
"""What only servers load."""
_TESTS: Final = "tests.databases"
"""What the workers of tests load, and nothing else."""
_OF_THE_START: Final = ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG", "TZ", "OPENSSL_", "SSL_")
"""Names of variables that begin so are read as a program starts, or is loaded."""

_TRACES: Final = "PYTHONFAULTHANDLER"
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
    names = {each for each in both if each.startswith(_OF_THE_START)} - {"PYTHONPATH", _TRACES}
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
                [sys.executable, "-m", "tests.loaded", *map(str, fds), str(data)],
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
        request = json.dumps([list(words), dict(env), str(cwd), has_session, None]).encode()
        try:
            with _NETWORK.open("rb") as network:
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


def _load(data: Path) -> None:
    """Make what the command and its servers need, before the first fork.

    `data` is a folder with an empty database, for servers that make their routes there.
    """
    from cloudcore.db.statement import compile_all  # noqa: PLC0415 - not in the process of tests
    from cloudcore.iam import passwords  # noqa: PLC0415
    from cloudcore.keyring import create_root_key  # noqa: PLC0415
    from registry.cli import main  # noqa: PLC0415
    from registry.composition.main import Registry, prepare  # noqa: PLC0415
    from registry.composition.serve import SERVE  # noqa: PLC0415
    from registry.settings.settings import Settings  # noqa: PLC0415

    gc.disable()  # it would look at all that is made here again and again
    # The parsers of a thousand options take longer than most commands.
    patch.object(main, "make_parser", cache(main.make_parser)).start()
    # To check a password takes a quarter of a second of a processor, by design.
    patch.object(passwords, "COST", passwords.ScryptCost(log_n=4, r=8, p=1)).start()
    for modules in (None, main.SERVER_MODULES):
        main.make_parser(modules)
    for name in _SERVERS:
        import_module(name)
    for is_postgresql in (False, True):
        compile_all(for_postgresql=is_postgresql)
    settings = Settings(data=data)
    prepare(settings)
    create_root_key(settings.root_key)
    asyncio.run(Registry(settings, SERVE).rehearse())
    gc.collect()
    gc.freeze()
    gc.enable()
    assert threading.active_count() == 1


def _fork_on_request(requests: socket.socket, listener: socket.socket) -> None:
    """Fork for each request until the tests can send none, and tell of each end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the tests
    running: dict[int, tuple[int, int]] = {}  # process and pipe, by what tells of its end
    waited = select.poll()
    for each in (requests, listener):
        waited.register(each, select.POLLIN)
    while True:
        for ready, _ in waited.poll():
            if ready in running:
                waited.unregister(ready)
                _tell_of_end(ready, *running.pop(ready))
                continue
            asked, descriptors = _receive(requests if ready == requests.fileno() else listener)
            if not asked:
                return
            telling = descriptors.pop()
            started = _fork(asked)
            if started == 0:
                for ending, (_, pipe) in running.items():
                    os.close(ending)
                    os.close(pipe)
                os.close(telling)
                requests.close()
                listener.close()
                _run(descriptors, *asked)
            for number in descriptors:
                os.close(number)
            if started is None:
                os.close(telling)
                continue
            ending = os.pidfd_open(started)
            running[ending] = started, telling
            waited.register(ending, select.POLLIN)
            _tell(telling, started)


def _receive(ready: socket.socket) -> tuple[list[Any], list[int]]:
    """Return a request and its descriptors; the request is empty after the last one."""
    if ready.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        with ready.accept()[0] as asking:
            return _receive(asking)
    asked, descriptors, _, _ = socket.recv_fds(ready, _LARGEST_REQUEST, _DESCRIPTORS)
    return json.loads(asked or b"[]"), descriptors


def _fork(asked: list[Any]) -> int | None:
    """Return the id of the process that is the program, 0 there, or None if none is forked."""
    words, env, *_ = asked
    if words[0].startswith("tests."):
        import_module(_TESTS)
    return os.fork() if can_be_forked(env) else None


def _tell(telling: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for the program
        os.write(telling, NUMBER.pack(number))


def _tell_of_end(ending: int, process: int, telling: int) -> None:
    """Tell the exit status of a process that has ended."""
    _, status = os.waitpid(process, 0)
    _tell(telling, os.waitstatus_to_exitcode(status))
    os.close(telling)
    os.close(ending)


def _run(
    descriptors: list[int],
    words: list[str],
    env: dict[str, str],
    cwd: str,
    has_session: bool,
    umask: int | None,
) -> NoReturn:
    """Be the program."""
    if has_session:
        os.setsid()
    if umask is not None:
        os.umask(umask)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    *streams, network = descriptors
    if os.fstat(network).st_ino != _NETWORK.stat().st_ino:
        namespaces = import_module("cloudcore.network.drivers.namespaces")
        namespaces.enter(network)
    os.close(network)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    is_terminal = os.isatty(1)
    sys.stdin = _opened(0, "r")
    sys.stdout = _opened(1, "w", buffering=1 if is_terminal else -1)
    sys.stderr = _opened(2, "w", buffering=1, errors="backslashreplace")
    if env.get(_TRACES):
        faulthandler.enable()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = words
    _end(_status_of(words[0]))


def _status_of(module: str) -> int:
    """Run a module; return its exit status, or the negative number of the signal that ends it."""
    try:
        run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
            return 1
        return (ended.code or 0) & 0xFF
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end(status: int) -> NoReturn:
    """End as the interpreter does, but let the system free the memory.

    The interpreter frees objects one by one. That takes six times as long as to fork: each page of
    memory that it writes to is copied first.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            status = status or 120
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _opened(number: int, mode: str, **options: Any) -> Any:  # noqa: ANN401 - of `open`
    return open(number, mode, closefd=False, **options)


if __name__ == "__main__":
    with (
        socket.socket(fileno=int(sys.argv[1])) as of_tests,
        socket.socket(fileno=int(sys.argv[2])) as of_scripts,
    ):
        _load(Path(sys.argv[3]))
        _fork_on_request(of_tests, of_scripts)
