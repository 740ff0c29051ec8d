"""Run ``entrepot`` and sample where its processor time goes.

    python sampled_server.py FILE serve --port 5000 …

The kernel interrupts the process after each few milliseconds of processor time. If the event loop's
thread ran, that counts for the layer of its innermost frame that has one. What the other threads
ran is known exactly. On SIGUSR2 the process writes to FILE what it found, and begins anew.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

INTERVAL_SECONDS: Final = 0.001
"""Of processor time; the kernel rounds it up to its own tick."""

EVENT_LOOP: Final = "event loop"
LOOP_THREAD: Final = "loop's thread"
THREADS: Final = {
    "sqlite-writer": "database threads",
    "postgresql": "database threads",
    "bulk-": "bulk threads",
}
"""Prefixes of the names of threads, and their kind."""
OTHER_THREADS: Final = "other threads"
LAYERS: Final = (
    ("cloudcore.serving.processes.server", EVENT_LOOP),
    ("cloudcore.serving.logs", "access log, metrics"),
    ("cloudcore.serving.counters", "access log, metrics"),
    ("cloudcore.serving.request_record", "access log, metrics"),
    ("cloudcore.serving.dispatch", "dispatch"),
    ("cloudcore.serving.planes", "dispatch"),
    ("cloudcore.serving", "protocol"),
    ("cloudcore.db", "database"),
    ("cloudcore.kms", "keys"),
    ("registry.kms", "keys"),
    ("registry.services.data_keys", "keys"),
    ("cloudcore.identity", "authorization"),
    ("cloudcore.iam", "authorization"),
    ("registry.services.access.bearers", "authorization"),
    ("registry.distribution.auth", "authorization"),
    ("registry.distribution.token", "authorization"),
    ("registry.distribution", "handlers"),
    ("registry.services", "services"),
    ("registry.metadata", "services"),
    ("registry.oci", "services"),
    ("registry.blobstore", "blob store"),
    ("cloudcore", "other"),
    ("registry", "other"),
)
"""Prefixes of modules, and their layer; the first that fits counts."""

_known: dict[str, str | None] = {}


def layer_of(module: str) -> str | None:
    """Return the layer of a module, or None if it is not ours."""
    if module not in _known:
        fitting = (layer for prefix, layer in LAYERS if module.startswith(prefix))
        _known[module] = next(fitting, None)
    return _known[module]


def layer_of_frame(frame: FrameType | None) -> str | None:
    """Return the layer of the innermost frame that has one."""
    while frame is not None:
        layer = layer_of(str(frame.f_globals.get("__name__", "")))
        if layer is not None:
            return layer
        frame = frame.f_back
    return None


class Found(msgspec.Struct):
    """What was found since the last time."""

    layers: dict[str, int]
    """Interrupts of the event loop's thread."""
    threads: dict[str, float]
    """Seconds of processor time by kind of thread."""


class Sampler:
    """Counts interrupts by layer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: Counter[str] = Counter()
        self._sampled: dict[str, float] = {}
        self._written: dict[str, float] = {}

    def start(self) -> None:
        """Count from now on."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR2, self._write)
        signal.siginterrupt(signal.SIGPROF, False)  # noqa: FBT003
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        used = thread_seconds()
        ran = {kind: seconds - self._sampled.get(kind, 0) for kind, seconds in used.items()}
        self._sampled = used
        if ran[LOOP_THREAD] > sum(ran.values()) / 2:
            self._counts[layer_of_frame(frame) or EVENT_LOOP] += 1

    def _write(self, _: int, frame: FrameType | None) -> None:
        del frame
        used = thread_seconds()
        ran = {kind: seconds - self._written.get(kind, 0) for kind, seconds in used.items()}
        part = self._path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(Found(dict(self._counts), ran)))
        part.replace(self._path)
        self._written = used
        self._counts.clear()


def thread_seconds() -> dict[str, float]:
    """Return the processor time of the living threads by kind, in seconds."""
    seconds = dict.fromkeys((LOOP_THREAD, *THREADS.values(), OTHER_THREADS), 0.0)
    for thread in threading.enumerate():
        assert thread.ident is not None
        used = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        if thread is threading.main_thread():
            kind = LOOP_THREAD
        else:
            kinds = (kind for prefix, kind in THREADS.items() if thread.name.startswith(prefix))
            kind = next(kinds, OTHER_THREADS)
        seconds[kind] += used
    return seconds


def main() -> int:
    """Run the command and sample it."""
    Sampler(Path(sys.argv.pop(1))).start()
    from registry.cli.main import main as command  # noqa: PLC0415 - what it imports is sampled too

    return command()


if __name__ == "__main__":
    sys.exit(main())
