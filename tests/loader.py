"""The process that has loaded what programs of the tests import, and forks for each of them."""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import gc
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from runpy import run_module
from typing import Any, Final, NamedTuple, NoReturn
from unittest.mock import patch

from tests.loaded import NETWORK, TRACES, can_be_forked
from tests.loaded_client import NUMBER

_LARGEST_REQUEST: Final = 1 << 17
_SCRIPT_SECONDS: Final = 10
"""Between the connection of a script and its request, which follows at once."""
_DESCRIPTORS: Final = 5
"""Of a request: standard streams, network namespace, and the pipe for what becomes of it."""
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
    from tests.passwords import CHEAP  # noqa: PLC0415

    gc.disable()  # it would look at all that is made here again and again
    # The parsers of a thousand options take longer than most commands.
    patch.object(main, "make_parser", cache(main.make_parser)).start()
    patch.object(passwords, "COST", CHEAP).start()
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


class _Request(NamedTuple):
    """A program that is to be started."""

    words: list[str]
    env: dict[str, str]
    cwd: str
    has_session: bool
    umask: int | None


def _fork_on_request(requests: socket.socket, listener: socket.socket) -> None:
    """Fork for each request until the tests can send none, and write each end to its pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the tests
    running: dict[int, tuple[int, int]] = {}  # process and pipe of its status, by pidfd
    waited = select.poll()
    for each in (requests, listener):
        waited.register(each, select.POLLIN)
    while True:
        for ready, _ in waited.poll():
            if ready in running:
                waited.unregister(ready)
                _end_of(ready, *running.pop(ready))
                continue
            is_script = ready == listener.fileno()
            request, descriptors = _accept(listener) if is_script else _receive(requests)
            if request is not None:
                pidfd = _start(request, descriptors, running, [requests, listener])
                if pidfd is not None:
                    waited.register(pidfd, select.POLLIN)
            elif not is_script:
                return


def _start(
    request: _Request,
    descriptors: list[int],
    running: dict[int, tuple[int, int]],
    sockets: list[socket.socket],
) -> int | None:
    """Fork the program, add it to those that run, and return its pidfd; None if none is forked."""
    status_pipe = descriptors.pop()
    started = _fork(request)
    if started == 0:
        for number in chain([status_pipe], running, (pipe for _, pipe in running.values())):
            os.close(number)
        for each in sockets:
            each.close()
        _run(descriptors, request)
    for number in descriptors:
        os.close(number)
    if started is None:
        os.close(status_pipe)
        return None
    pidfd = os.pidfd_open(started)
    running[pidfd] = started, status_pipe
    _write(status_pipe, started)
    return pidfd


def _accept(listener: socket.socket) -> tuple[_Request | None, list[int]]:
    """Return the request of a script and its descriptors; None if it ended before it sent one."""
    with listener.accept()[0] as script:
        script.settimeout(_SCRIPT_SECONDS)
        try:
            return _receive(script)
        except OSError:
            return None, []


def _receive(sender: socket.socket) -> tuple[_Request | None, list[int]]:
    """Return a request and its descriptors; None if the other end is closed."""
    received, descriptors, _, _ = socket.recv_fds(sender, _LARGEST_REQUEST, _DESCRIPTORS)
    if not received:
        return None, descriptors
    has_session, umask, cwd, count, *rest = map(os.fsdecode, received.split(b"\0"))
    words, variables = rest[: int(count)], rest[int(count) :]
    env = {name: value for name, _, value in (each.partition("=") for each in variables)}
    request = _Request(words, env, cwd, bool(has_session), int(umask) if umask else None)
    return request, descriptors


def _fork(request: _Request) -> int | None:
    """Return the id of the process that is the program, 0 there, or None if none is forked."""
    if request.words[0].startswith("tests."):
        import_module(_TESTS)
    return os.fork() if can_be_forked(request.env) else None


def _write(status_pipe: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for the program
        os.write(status_pipe, NUMBER.pack(number))


def _end_of(pidfd: int, process: int, status_pipe: int) -> None:
    """Write the exit status of a process that has ended to its pipe."""
    _, status = os.waitpid(process, 0)
    _write(status_pipe, os.waitstatus_to_exitcode(status))
    os.close(status_pipe)
    os.close(pidfd)


def _run(descriptors: list[int], request: _Request) -> NoReturn:
    """Be the program."""
    words, env, cwd, has_session, umask = request
    if has_session:
        os.setsid()
    if umask is not None:
        os.umask(umask)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    *streams, network = descriptors
    if os.fstat(network).st_ino != NETWORK.stat().st_ino:
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
    if env.get(TRACES):
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
