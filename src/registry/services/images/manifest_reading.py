"""Parse pushed manifests: small ones at once, large ones one at a time in a child process.

Parsing 4 MiB takes tens of milliseconds and 40 MiB of memory, and holds the interpreter's lock
meanwhile: in this process, even in a thread, it would delay every request. The child
(`manifest_child`) is started for the first large manifest. If it dies, the push it was parsing for
gets 503, and the next one starts a new child.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

from cloudcore.errors import Unavailable
from registry.oci.digest import Digest
from registry.oci.manifest import ReadManifest, read_manifest
from registry.services.images import manifest_child
from registry.services.images.manifest_child import (
    Failed,
    ManifestAnswer,
    ManifestQuestion,
    OutOfMemory,
    ParsedManifest,
    Refusal,
)

INLINE_BYTES: Final = 8 * 1024
"""The largest manifest that is parsed on the event loop, in at most 0.5 ms. The usual size is 2
KiB."""
MEDIUM_BYTES: Final = 64 * 1024
"""Manifests up to this size take a few milliseconds each. Larger ones queue for a lock of their own
first, so a medium one waits for at most one large one."""

Read = Callable[[bytes, str | None, Digest | None], ReadManifest]
"""Parses a manifest; blocks its thread."""
PATIENCE_SECONDS: Final = 20.0
"""The most time for one manifest; the usual is 0.1 s."""
RETRY_SECONDS: Final = 1
_COMMAND: Final = (
    sys.executable,
    "-P",
    "-c",
    "from registry.services.images.manifest_child import main; main()",
)
_BLOCKED_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_log = logging.getLogger(__name__)


class ThreadReader:
    """Parses manifests above `INLINE_BYTES` with `read` in one thread."""

    def __init__(self, read: Read = read_manifest, thread: Executor | None = None) -> None:
        self._read = read
        self._thread = thread or ThreadPoolExecutor(1, "manifest")
        self._large = asyncio.Lock()

    async def read(
        self, body: bytes, content_type: str | None, expected: Digest | None
    ) -> ReadManifest:
        """Parse the manifest `body`; see `read_manifest`.

        Raises:
            Unavailable: it is large, and the child process failed.

        """
        if len(body) <= INLINE_BYTES:
            return read_manifest(body, content_type, expected)
        if len(body) <= MEDIUM_BYTES:
            return await self._read_in_thread(body, content_type, expected)
        async with self._large:
            return await self._read_in_thread(body, content_type, expected)

    def _read_in_thread(
        self, body: bytes, content_type: str | None, expected: Digest | None
    ) -> Awaitable[ReadManifest]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, self._read, body, content_type, expected)

    def close(self) -> None:
        """Wait for the manifest being parsed, and cancel those that wait."""
        self._thread.shutdown(cancel_futures=True)


class ProcessReader(ThreadReader):
    """Parses manifests above `INLINE_BYTES` in a child process."""

    def __init__(self) -> None:
        self._process = ManifestProcess()
        super().__init__(self._process.read)

    @property
    def pid(self) -> int | None:
        """Return the process id of the child, or None if none runs."""
        return self._process.pid

    def close(self) -> None:
        """Kill the child, even while it parses, and cancel the manifests that wait."""
        self._process.close()
        super().close()


class ManifestProcess:
    """A child process that parses one manifest at a time; started at the first use."""

    def __init__(
        self,
        command: Sequence[str] = _COMMAND,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._command = command
        self._clock = clock
        self._patience = patience
        self._changing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stream: socket.socket | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Return the process id, or None if no process runs."""
        process = self._process
        return None if process is None else process.pid

    def read(self, body: bytes, content_type: str | None, expected: Digest | None) -> ReadManifest:
        """Parse the manifest `body`. Blocks; only one thread may call it at a time.

        Raises:
            DigestMismatch, ManifestInvalid, ManifestTypeUnsupported: see `read_manifest`.
            Unavailable: the process died, took too long or too much memory, or cannot be started.

        """
        question = ManifestQuestion(
            len(body), content_type, None if expected is None else str(expected)
        )
        try:
            answer = self._ask(question, body)
        except (OSError, EOFError, subprocess.SubprocessError) as error:
            self._end()
            if not self._is_closed:
                _log.error("the process that reads large manifests failed: %r", error)
            raise _unavailable("was interrupted") from None
        match answer:
            case ParsedManifest():
                return manifest_child.manifest_of(answer)
            case Refusal():
                raise manifest_child.refusal_of(answer)
            case OutOfMemory():
                _log.error("a manifest of %d bytes took too much memory to read", len(body))
                raise _unavailable("took too much memory")
            case Failed():
                raise RuntimeError(f"the process that reads large manifests:\n{answer.trace}")

    def close(self) -> None:
        """Kill the process, even while it parses; callable from any thread."""
        self._is_closed = True
        self._end()

    def _ask(self, question: ManifestQuestion, body: bytes) -> ManifestAnswer:
        stream = self._running()
        until = self._clock() + self._patience
        # Sending and receiving each have their own timeout: together at most twice `patience`.
        stream.settimeout(self._patience)
        manifest_child.send(stream, question, body)
        stream.settimeout(max(until - self._clock(), 0.001))
        return manifest_child.receive_answer(stream)

    def _running(self) -> socket.socket:
        """Return the stream to the process; start the process if none runs."""
        if self._process is not None and self._process.poll() is not None:
            _log.warning("the process that reads large manifests had ended; it is started again")
            self._end()
        with self._changing:
            if self._is_closed:
                raise EOFError("the registry is stopping")
            if self._stream is None:
                self._process, self._stream = _start(self._command)
            return self._stream

    def _end(self) -> None:
        with self._changing:
            process, stream = self._process, self._stream
            self._process = self._stream = None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)  # wakes a thread in `recv`
            stream.close()
        if process is not None:
            process.kill()
            process.wait()


def _start(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process whose standard input is a socket; return it and the other end."""
    ours, theirs = socket.socketpair()
    # The child inherits the mask: a Ctrl+C for the process group does not end it, as a draining
    # server still needs it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_SIGNALS)
    try:
        with theirs:
            path = os.pathsep.join(entry for entry in sys.path if entry)
            process = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=theirs.fileno(), env={**os.environ, "PYTHONPATH": path}
            )
    except BaseException:
        ours.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process, ours


def _unavailable(what: str) -> Unavailable:
    return Unavailable(
        f"the reading of the manifest {what}; send it again", retry_after=RETRY_SECONDS
    )
