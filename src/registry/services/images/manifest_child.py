"""The process that parses large manifests for one worker; `manifest_reading` starts it.

It reads one manifest at a time from the socket on its standard input, and exits when the other end
is closed, which the kernel does if the worker dies. Its parent starts it with SIGINT and SIGTERM
blocked: a server that drains still needs it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from typing import Final

from registry.errors import DigestMismatch, ManifestInvalid
from registry.oci.digest import Digest
from registry.oci.pushed_manifest import read_manifest
from registry.services.images import manifest_wire
from registry.services.images.manifest_wire import (
    Failed,
    ManifestAnswer,
    ManifestQuestion,
    OutOfMemory,
)

MEMORY_BYTES: Final = 192 * 1024 * 1024
"""Memory for parsing. The worst manifest that is accepted needs 40 MiB beside its own bytes."""
NICENESS: Final = 5
"""Added to the process's niceness, so that small requests run first on a busy machine."""


def main() -> None:
    """Read manifests until the parent closes the socket."""
    bound_memory()
    os.nice(NICENESS)
    with socket.socket(fileno=0) as stream, contextlib.suppress(EOFError, ConnectionError):
        while True:
            question, body = manifest_wire.receive_question(stream)
            manifest_wire.send(stream, answer(question, body))


def bound_memory() -> None:
    """Limit this process to `MEMORY_BYTES` more than it has now; disable core files."""
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - pathlib takes long to import
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answer(question: ManifestQuestion, body: bytes) -> ManifestAnswer:
    """Parse a manifest and return the answer for the worker."""
    expected = Digest(question.expected) if question.expected is not None else None
    try:
        return manifest_wire.parsed_answer(read_manifest(body, question.content_type, expected))
    except (DigestMismatch, ManifestInvalid) as error:
        return manifest_wire.refusal(error)
    except MemoryError:
        return OutOfMemory()
    except Exception:  # noqa: BLE001 - the parent logs it
        import traceback  # noqa: PLC0415 - takes long, and is for bugs

        return Failed(traceback.format_exc())


if __name__ == "__main__":
    main()
