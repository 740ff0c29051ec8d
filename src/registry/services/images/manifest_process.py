"""The process in which a worker has large manifests read.

A parser holds the interpreter's lock from the first byte to the last, some 60 ms of 4 MiB: in any
thread of this process, every request would wait. So it runs in a process of its own
(`manifest_child`), started for the first large manifest. When that process dies, the manifest it
was reading is answered 503, and the next one starts it again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from cloudcore.errors import Unavailable
from registry.oci.digest import Digest
from registry.oci.pushed_manifest import ReadManifest
from registry.services.images import manifest_wire
from registry.services.images.manifest_wire import (
    Answer,
    Failed,
    OutOfMemory,
    Question,
    Refusal,
    Taken,
)

PATIENCE_SECONDS: Final = 20.0
"""How long the process may take for one manifest, which takes it a tenth of a second."""
RETRY_SECONDS: Final = 1

_COMMAND: Final = (
    sys.executable,
    "-P",
    "-c",
    "from registry.services.images.manifest_child import main; main()",
)
_NOT_FOR_IT: Final = (signal.SIGINT, signal.SIGTERM)

_log = logging.getLogger(__name__)


class ManifestProcess:
    """A process that reads manifests, one at a time; started when it is needed."""

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
        """Return the id of the process, or None if none runs."""
        process = self._process
        return None if process is None else process.pid

    def read(self, body: bytes, content_type: str | None, expected: Digest | None) -> ReadManifest:
        """Return the manifest that `body` is; blocks, and one thread at a time may call it.

        Raises:
            DigestMismatch, ManifestInvalid, ManifestTypeUnsupported: see `read_manifest`.
            Unavailable: the process died, took too long or too much memory, or cannot be started.

        """
        question = Question(len(body), content_type, None if expected is None else str(expected))
        try:
            answer = self._ask(question, body)
        except (OSError, EOFError, subprocess.SubprocessError) as error:
            self._end()
            if not self._is_closed:
                _log.error("the process that reads large manifests failed: %r", error)
            raise _unavailable("was interrupted") from None
        match answer:
            case Taken():
                return manifest_wire.read_of(answer)
            case Refusal():
                raise manifest_wire.refusal_of(answer)
            case OutOfMemory():
                _log.error("a manifest of %d bytes took too much memory to read", len(body))
                raise _unavailable("took too much memory")
            case Failed():
                raise RuntimeError(f"the process that reads large manifests:\n{answer.trace}")

    def close(self) -> None:
        """End the process, and what it is doing; may be called in any thread."""
        self._is_closed = True
        self._end()

    def _ask(self, question: Question, body: bytes) -> Answer:
        stream = self._running()
        until = self._clock() + self._patience
        # Each part may take all the time that is left: at most twice of it in all.
        stream.settimeout(self._patience)
        manifest_wire.send(stream, question, body)
        stream.settimeout(max(until - self._clock(), 0.001))
        return manifest_wire.receive_answer(stream)

    def _running(self) -> socket.socket:
        """Return the stream to the process, which is started unless it runs."""
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
                stream.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer
            stream.close()
        if process is not None:
            process.kill()
            process.wait()


def _start(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process whose standard input is a socket; return it and the other end."""
    ours, theirs = socket.socketpair()
    # Inherited: signals to the whole group, such as Ctrl+C, do not reach what a drain needs.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_IT)
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
