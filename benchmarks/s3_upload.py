"""Upload one large blob in chunks to a registry whose store is a counting S3 server.

    python -m benchmarks.s3_upload                 # 10 GiB, plain and sealed
    python -m benchmarks.s3_upload --gib 100 --kinds entrepot-plain

Each chunk is a ``PATCH`` that is acknowledged. The S3 server (`benchmarks.counting_s3`) keeps the
tails and drops the parts, so that no disk is measured. Checked are the number and the sizes of the
parts, that each came with its checksum, that nothing is left of the upload, and that the memory of
the registry does not grow with the blob, but for the size of its parts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import exchanges
from benchmarks.processes import Watch, machine, process_tree
from benchmarks.report import table
from benchmarks.s3_stub import COUNTED, counting_s3
from benchmarks.servers import KINDS, Server
from benchmarks.wire import Connection, ExchangeFailedError
from registry.blobstore.s3.parts import MOST_PARTS, part_bytes

GIB: Final = 1 << 30
MIB: Final = 1 << 20
REPOSITORY: Final = "dev/large"
CHUNK_BYTES: Final = 100_000_000
"""No multiple of a part, so that nearly each chunk ends with a tail."""
KEPT_PARTS: Final = 6
"""Parts of one upload in memory: one that is filled, two that are sent, a tail and its copy, and
what malloc keeps. Later parts are larger."""
_SLACK: Final = 32 << 20
_SAMPLES: Final = 0.1


class Uploaded(NamedTuple):
    """What an upload took."""

    kind: str
    seconds: float
    cpu_seconds: float
    early_peak: int
    """Bytes of the largest process at most, while the first tenth was sent."""
    peak: int
    parts: Mapping[int, int]
    """How many parts had a size."""
    counts: Mapping[str, Any]


class Pattern:
    """The bytes of a chunk in a memory file, and the digest of many chunks."""

    def __init__(self, size: int) -> None:
        """Cut the last chunk so that all have `size` bytes."""
        whole, rest = divmod(size, CHUNK_BYTES)
        self.sizes: Sequence[int] = [*[CHUNK_BYTES] * whole, *([rest] if rest else [])]
        piece = os.urandom(CHUNK_BYTES)
        self.descriptor = os.memfd_create("chunk")
        with os.fdopen(os.dup(self.descriptor), "wb") as file:
            file.write(piece)
        running = sha256()
        for each in self.sizes:
            running.update(memoryview(piece)[:each])
        self.digest = f"sha256:{running.hexdigest()}"


@contextmanager
def sampled(watch: Watch) -> Iterator[None]:
    """Read the memory of processes again and again during the block."""
    over = threading.Event()

    def sample() -> None:
        while not over.wait(_SAMPLES):
            watch.sample()

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def upload(server: Server, pattern: Pattern) -> tuple[float, Watch, int]:
    """Send all chunks, and commit; return the seconds, the cost, and the peak of the beginning."""
    assert server.bearers is not None
    watch = Watch(server.pids)
    watch.start()
    early, tenth = 0, len(pattern.sizes) // 10
    begun = time.perf_counter()
    with closing(Connection(server.url)) as connection, sampled(watch):
        bearer = server.bearers.header
        location = exchanges.open_upload(connection, REPOSITORY, bearer())
        for number, size in enumerate(pattern.sizes):
            request = connection.request(
                "PATCH", location, bearer(), f"Content-Length: {size}", "Content-Type: a/b"
            )
            connection.send(request, more=True)
            connection.send_file(pattern.descriptor, size)
            head = exchanges.answer(connection, 202, "PATCH")
            location = exchanges.location_of(head)
            if number == tenth:
                early = watch.peak_worker_bytes
        target = exchanges.with_digest(location, pattern.digest)
        connection.send(connection.request("PUT", target, bearer(), "Content-Length: 0"))
        exchanges.answer(connection, 201, "PUT")
    watch.stop()
    return time.perf_counter() - begun, watch, early


def measure(kind: str, pattern: Pattern, data: Path) -> Uploaded:
    """Upload once to a registry of a kind, with a store of its own."""
    with ExitStack() as stack:
        stub = stack.enter_context(counting_s3())
        server = Server(KINDS[kind], data / kind, 1, {**stub.settings})
        server.repositories = (REPOSITORY,)
        stack.callback(server.stop)
        server.start()
        seconds, watch, early = upload(server, pattern)
        counts = stub.ask(COUNTED)
        assert process_tree(server.pids[0])
    parts = {int(size): count for size, count in counts["parts"].items()}
    return Uploaded(kind, seconds, watch.cpu_seconds, early, watch.peak_worker_bytes, parts, counts)


def problems(found: Uploaded, size: int) -> Iterator[str]:
    """Yield what is wrong with an upload."""
    number = found.counts["most_parts"]
    planned = sum(part_bytes(each) for each in range(number))
    if number > MOST_PARTS:
        yield f"{number} parts"
    if sum(each * count for each, count in found.parts.items()) < size:
        yield "bytes are missing"
    if planned - sum(each * count for each, count in found.parts.items()) >= part_bytes(number):
        yield "parts are smaller than planned"
    if found.counts["without_checksum"]:
        yield f"{found.counts['without_checksum']} bodies without a checksum"
    if found.counts["open_uploads"]:
        yield "an upload in parts is left"
    grown = KEPT_PARTS * (part_bytes(number) - part_bytes(0))
    if found.peak > found.early_peak + grown + _SLACK:
        yield f"memory grew from {found.early_peak // MIB} to {found.peak // MIB} MiB"


def show(results: Sequence[Uploaded], size: int) -> None:
    """Print what uploads took."""
    lines = [["", "s", "MiB/s", "CPU s", "parts", "sizes, MiB", "peak MiB, a tenth", "all"]]
    for each in results:
        sizes = ", ".join(
            f"{count} x {length / MIB:.4g}" for length, count in sorted(each.parts.items())
        )
        lines.append(
            [
                each.kind,
                f"{each.seconds:.0f}",
                f"{size / MIB / each.seconds:.0f}",
                f"{each.cpu_seconds:.0f}",
                str(each.counts["most_parts"]),
                sizes,
                f"{each.early_peak / MIB:.0f}",
                f"{each.peak / MIB:.0f}",
            ]
        )
    print(table(lines))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.s3_upload", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--kinds", nargs="*", default=["entrepot-plain", "entrepot-sealed"])
    parser.add_argument("--data", type=Path, help="folder for the registry's data")
    options = parser.parse_args(argv)
    size, wrong = int(options.gib * GIB), 0
    pattern = Pattern(size)
    print(json.dumps(machine()))
    with tempfile.TemporaryDirectory(prefix="s3-upload-", dir=options.data) as folder:
        results = []
        for kind in options.kinds:
            try:
                results.append(measure(kind, pattern, Path(folder)))
            except (ExchangeFailedError, OSError) as error:
                print(f"INVALID: {kind}: {error}", file=sys.stderr)
                wrong = 1
                continue
            for each in problems(results[-1], size):
                print(f"WRONG: {kind}: {each}", file=sys.stderr)
                wrong = 1
    show(results, size)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
