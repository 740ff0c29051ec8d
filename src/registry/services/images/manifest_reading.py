"""Read a pushed manifest: a small one at once, large ones in another process, one after the other.

Parsing 4 MiB takes tens of milliseconds and ten times the memory, and holds the interpreter's lock
meanwhile: in this process, even in a thread, every request would wait.
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
"""The largest manifest that is read on the event loop, within half a millisecond. A usual one has
some 2 KiB."""
MEDIUM_BYTES: Final = 64 * 1024
"""Larger ones wait for each other before they wait for medium ones, which take a few
milliseconds: so nobody's medium manifest waits for more than one that takes long."""

Read = Callable[[bytes, str | None, Digest | None], ReadManifest]
"""Reads a manifest; blocks its thread."""


class ManifestReader(Protocol):
    """Reads the manifests that are pushed to a process."""

    async def read(
        self, body: bytes, content_type: str | None, expected: Digest | None
    ) -> ReadManifest:
        """Return the manifest that `body` is; see `read_manifest`.

        Raises:
            Unavailable: a large one cannot be read now.

        """
        ...


class ThreadReader:
    """Reads large manifests by `read` in a thread, one after the other."""

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
        """Wait for what is being read; nothing more is read."""
        self._thread.shutdown(cancel_futures=True)


class ProcessReader(ThreadReader):
    """Reads large manifests in a process of its own."""

    def __init__(self) -> None:
        self._process = ManifestProcess()
        super().__init__(self._process.read)

    @property
    def pid(self) -> int | None:
        """Return the id of the process, or None if none runs."""
        return self._process.pid

    def close(self) -> None:
        """End the process, and with it what it reads; nothing more is read."""
        self._process.close()
        super().close()
