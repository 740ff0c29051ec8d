"""The system calls of a process, seen by strace."""

from __future__ import annotations

import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.servers import UnavailableError

_WAITS: Final = ("futex", "epoll_wait", "epoll_pwait", "poll", "restart_syscall", "sched_yield")
"""They depend on which thread the kernel runs first, so they are not counted."""
_FLUSHES: Final = ("fsync", "fdatasync")
_COPIES: Final = (
    *("read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg"),
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendto", "sendmsg"),
)
_ENDED: Final = re.compile(r"^\d+ +(?:<\.\.\. )?(?P<name>\w+)[ (].*= (?P<answer>-?\d+)")
_ATTACH_SECONDS: Final = 20


class SystemCalls(NamedTuple):
    """The calls of some time."""

    calls: int
    """All but those that only wait."""
    flushes: int
    copied_bytes: int
    """Between the kernel and the process: what `sendfile` moves is not copied."""


def sum_calls(lines: Iterable[str]) -> SystemCalls:
    """Return the calls in the output of strace."""
    calls = flushes = copied = 0
    for line in lines:
        found = _ENDED.match(line)
        if found is None:  # the beginning of a call that another one interrupted, or a signal
            continue
        name = found["name"]
        calls += 1
        flushes += name in _FLUSHES
        if name in _COPIES:
            copied += max(0, int(found["answer"]))
    return SystemCalls(calls, flushes, copied)


class Trace:
    """The calls of a process in a ``with`` block of `traced`; read `found` after it."""

    found: SystemCalls


@contextmanager
def traced(pid: int) -> Iterator[Trace]:
    """Watch a process and all its threads.

    Raises:
        UnavailableError: strace may not watch it.

    """
    trace = Trace()
    with tempfile.NamedTemporaryFile("r", prefix="strace-") as output:
        waits = f"trace=!{','.join(_WAITS)}"
        command = ["strace", "-f", "-s", "0", "-e", waits, "-e", "signal=none"]
        with subprocess.Popen(
            [*command, "-o", output.name, "-p", str(pid)], stderr=subprocess.PIPE
        ) as strace:
            try:
                _await_attached(strace, pid)
                yield trace
            finally:
                strace.send_signal(signal.SIGINT)
                strace.wait()
        trace.found = sum_calls(output)


def _await_attached(strace: subprocess.Popen[bytes], pid: int) -> None:
    """Wait until all threads are watched."""
    assert strace.stderr is not None
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    said = b""
    deadline = time.monotonic() + _ATTACH_SECONDS
    while said.count(b" attached") < threads and b"attached with" not in said:
        if not select.select([strace.stderr], [], [], max(0, deadline - time.monotonic()))[0]:
            break
        part = strace.stderr.read1()  # type: ignore[attr-defined] # a buffered reader
        if not part:
            break
        said += part
    if b" attached" not in said:
        raise UnavailableError(f"strace cannot watch the server: {said.decode().strip()}")
