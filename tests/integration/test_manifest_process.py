"""Large manifests are read in another process, whatever becomes of it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from cloudcore.errors import PlatformError, Unavailable
from registry.oci.digest import Digest, digest_of
from registry.oci.manifest import (
    MAX_ANNOTATIONS,
    MAX_BYTES,
    MAX_DESCRIPTORS,
    MAX_PARTS,
    ReadManifest,
    read_manifest,
)
from registry.services.images import manifest_child, manifest_reading
from registry.services.images.manifest_reading import (
    INLINE_BYTES,
    RETRY_SECONDS,
    ManifestProcess,
    ProcessReader,
)
from tests.descriptors import list_open

ROOT: Final = Path(__file__).resolve().parents[2]
PART: Final = {"mediaType": "a/b", "digest": digest_of(b""), "size": 0}


def image(**more: object) -> bytes:
    return json.dumps({"schemaVersion": 2, "config": PART, "layers": [], **more}).encode()


LARGE: Final = image(x="x" * INLINE_BYTES)


@pytest.fixture
def process() -> Iterator[ManifestProcess]:
    made = ManifestProcess()
    yield made
    made.close()


def ended(pid: int) -> bool:
    """Return True once a process has ended; False if it does not within ten seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


def running(process: ManifestProcess) -> int:
    """Return the id of the process, started by reading a manifest."""
    assert process.read(LARGE, None, None) == read_manifest(LARGE, None, None)
    assert process.pid is not None
    return process.pid


async def test_only_a_large_manifest_is_read_in_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here: list[int] = []

    def noted(body: bytes, content_type: str | None, expected: Digest | None) -> ReadManifest:
        here.append(len(body))
        return read_manifest(body, content_type, expected)

    monkeypatch.setattr(manifest_reading, "read_manifest", noted)

    reader = ProcessReader()
    try:
        small = image(x="x" * 1000)
        assert (await reader.read(small, None, None)).digest == digest_of(small)
        assert (here, reader.pid) == ([len(small)], None)
        found = await reader.read(LARGE, None, digest_of(LARGE, "sha512"))
        assert found == read_manifest(LARGE, None, None)
        assert here == [len(small)]
        assert reader.pid not in (None, os.getpid())
    finally:
        reader.close()
    assert reader.pid is None


def test_all_that_a_manifest_may_hold_comes_back(process: ManifestProcess) -> None:
    layers = [{**PART, "digest": f"sha256:{at:064x}"} for at in range(MAX_DESCRIPTORS - 2)]
    index = {"schemaVersion": 2, "manifests": layers, "subject": PART}
    texts = {f"{at:06}": "é" * 180 for at in range(MAX_ANNOTATIONS)}
    for body in (
        image(layers=layers, subject=PART),
        json.dumps(index).encode(),
        image(annotations=texts),
        json.dumps(json.loads(image(annotations=texts)), ensure_ascii=False).encode(),
        image(x={f"{at:06}": "x" * 60 for at in range((MAX_PARTS - 100) // 2)}),
        image(x=[{}] * (MAX_PARTS // 2 - 100)),
        image(x="x" * (MAX_BYTES - 1000) + "😀"),
    ):
        assert process.read(body, None, digest_of(body, "blake3")) == read_manifest(
            body, None, None
        )


def test_a_process_that_was_killed_is_started_again(process: ManifestProcess) -> None:
    before = list_open()
    pid = running(process)
    for _ in range(3):
        os.kill(pid, signal.SIGKILL)
        assert ended(pid)
        again = running(process)
        assert again != pid
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # it was waited for
        pid = again
    process.close()
    assert ended(pid)
    assert not list_open() - before


def test_who_pushes_while_the_process_is_killed_may_try_again() -> None:
    asked = threading.Event()

    def clock() -> float:  # looked at when the process is about to be asked
        asked.set()
        return 0

    process = ManifestProcess(clock=clock)
    with ThreadPoolExecutor(1) as thread:
        pid = running(process)
        os.kill(pid, signal.SIGSTOP)  # it reads no more
        asked.clear()
        reading = thread.submit(process.read, LARGE, None, None)
        assert asked.wait(60)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unavailable) as raised:
            reading.result(60)
    assert raised.value.retry_after == RETRY_SECONDS
    assert running(process) != pid
    process.close()


def test_a_process_that_takes_too_long_is_ended() -> None:
    times = [0.0, 0.0, 0.0, 1000.0, 0.0, 0.0]
    process = ManifestProcess(clock=lambda: times.pop(0))
    pid = running(process)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Unavailable, match="interrupted"):
        process.read(LARGE, None, None)
    assert ended(pid)
    assert running(process) != pid
    process.close()


def bounded(extra_bytes: int) -> ManifestProcess:
    """Return a process that may take `extra_bytes` of memory."""
    code = (
        "from registry.services.images import manifest_child\n"
        f"manifest_child.MEMORY_BYTES = {extra_bytes}\n"
        "manifest_child.main()"
    )
    return ManifestProcess((sys.executable, "-P", "-c", code))


def test_a_manifest_that_takes_too_much_memory_is_refused_and_the_next_is_read() -> None:
    process = bounded(16 << 20)
    pid = running(process)
    with pytest.raises(Unavailable, match="too much memory") as raised:
        process.read(image(x=["x" * 38] * (MAX_PARTS - 100)), None, None)
    assert raised.value.retry_after == RETRY_SECONDS
    assert running(process) == pid
    process.close()


def test_where_memory_does_not_suffice_for_the_bytes_the_next_is_read() -> None:
    process = bounded(2 << 20)
    running(process)
    with pytest.raises(Unavailable):
        process.read(image(x="x" * (MAX_BYTES - 1000)), None, None)
    running(process)
    process.close()


def test_a_bug_is_told_and_the_next_manifest_is_read() -> None:
    code = (
        "from registry.services.images import manifest_child\n"
        "right = manifest_child.read_manifest\n"
        "def wrong(body, *rest):\n"
        "    return right(body, *rest) if rest[0] is None else 1 / 0\n"
        "manifest_child.read_manifest = wrong\n"
        "manifest_child.main()"
    )
    process = ManifestProcess((sys.executable, "-P", "-c", code))
    pid = running(process)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        process.read(LARGE, "a/b", None)
    assert running(process) == pid
    process.close()


def test_a_program_that_cannot_be_started_is_no_bug() -> None:
    process = ManifestProcess(("/nowhere/python",))
    with pytest.raises(Unavailable):
        process.read(LARGE, None, None)
    assert process.pid is None


def test_signals_to_the_group_do_not_end_it(process: ManifestProcess) -> None:
    pid = running(process)
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    assert running(process) == pid


def test_a_closed_reader_reads_no_more(process: ManifestProcess) -> None:
    pid = running(process)
    process.close()
    assert ended(pid)
    with pytest.raises(Unavailable):
        process.read(LARGE, None, None)
    assert process.pid is None


def test_closing_interrupts_what_is_read() -> None:
    asked = threading.Event()

    def clock() -> float:
        asked.set()
        return 0

    process = ManifestProcess(clock=clock)
    with ThreadPoolExecutor(1) as thread:
        os.kill(running(process), signal.SIGSTOP)
        asked.clear()
        reading = thread.submit(process.read, LARGE, None, None)
        assert asked.wait(60)
        process.close()
        with pytest.raises(Unavailable):
            reading.result(60)


_PARENT: Final = """
import sys
from registry.services.images.manifest_reading import ManifestProcess
process = ManifestProcess()
process.read(sys.stdin.buffer.read(int(sys.argv[1])), None, None)
print(process.pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(len(LARGE))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    with parent:
        assert parent.stdin
        assert parent.stdout
        parent.stdin.write(LARGE)
        parent.stdin.flush()
        pid = int(parent.stdout.readline())
        parent.kill()
        assert ended(pid)
        with suppress(BrokenPipeError):
            parent.stdin.close()


def test_descriptors_come_in_portions_that_hold_the_lock_briefly() -> None:
    portion = manifest_child.PORTION
    layers = [PART] * (2 * portion + 1)
    read = read_manifest(image(layers=layers), None, None)
    answer = manifest_child.parsed_answer(read)
    assert (len(answer.layers), answer.manifest.layers) == (3, ())
    assert manifest_child.manifest_of(answer) == read


def test_a_stream_that_ends_within_a_frame_is_told() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\0\0\0\x0fabc")
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            manifest_child.receive_answer(ours)


def test_a_refusal_is_the_one_of_the_inline_reader(process: ManifestProcess) -> None:
    for body, content_type, expected in (
        (b"{" + LARGE, None, None),
        (LARGE, "text/plain", None),
        (LARGE, None, digest_of(b"")),
        (image(x=[0] * MAX_PARTS), None, None),
    ):
        with pytest.raises(PlatformError) as here:
            read_manifest(body, content_type, expected)
        with pytest.raises(type(here.value)) as there:
            process.read(body, content_type, expected)
        assert str(there.value) == str(here.value)
