"""Parse pushed manifests: small ones at once, large ones one at a time in a child process.

Parsing 4 MiB takes tens of milliseconds and 40 MiB of memory, and holds the interpreter's lock
meanwhile: in this process, even in a thread, it would delay every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, Protocol

from registry.oci.digest import Digest
from registry.oci.pushed_manifest import ReadManifest, read_manifest
from registry.services.images.manifest_process import ManifestProcess

INLINE_BYTES: Final = 8 * 1024
"""The largest manifest that is parsed on the event loop, in at most 0.5 ms. The usual size is 2
KiB."""
MEDIUM_BYTES: Final = 64 * 1024
"""Manifests up to this size take a few milliseconds each. Larger ones queue for a lock of their own
first, so a medium one waits for at most one large one."""

Read = Callable[[bytes, str | None, Digest | None], ReadManifest]
"""Parses a manifest; blocks its thread."""


class ManifestReader(Protocol):
    """Parses the manifests that are pushed to a process."""

    async def read(
        self, body: bytes, content_type: str | None, expected: Digest | None
    ) -> ReadManifest:
        """Parse the manifest `body`; see `read_manifest`.

        Raises:
            Unavailable: it is large, and the child process failed.

        """
        ...


class ThreadReader:
    """Parses manifests above `INLINE_BYTES` with `read` in one thread."""

    def __init__(self, read: Read = read_manifest, thread: Executor | None = None) -> None:
        self._read = read
        self._thread = thread or ThreadPoolExecutor(1, "manifest")
        self._large = asyncio.Lock()

    async def read(
        self, body: bytes, content_type: str | None, expected: Digest | None
    ) -> ReadManifest:
        """See `ManifestReader.read`."""
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
