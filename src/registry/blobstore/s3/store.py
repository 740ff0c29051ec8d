"""The blob store in a bucket: its calls are made in threads, since each waits for the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry.blobstore.base import BlobStore, DataKey, OpenObject, Staged
from registry.blobstore.locks import StoreLocks
from registry.blobstore.reading import ThreadedObject
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.disk_cache import DiskCache
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.growing import GrowingObject, GrowingUpload
from registry.blobstore.s3.parts import PartBytes, part_bytes
from registry.blobstore.s3.staged import S3Staged
from registry.blobstore.s3.uploads import Holds
from registry.blobstore.sweeper import Deleted
from registry.blobstore.threaded_store import ThreadedStore
from registry.blobstore.threads import Runner, Threads

_AT_ONCE: Final = 32
_LOOK_SECONDS: Final = 0.5
"""Between looks for the commit of another process: each is a request."""


class S3Store(ThreadedStore):
    """Keep blobs in a bucket (`S3Files`)."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        compresses: bool = False,
        look_seconds: float = _LOOK_SECONDS,
        sizes: PartBytes = part_bytes,
        holds: Holds | None = None,
        locks: StoreLocks | None = None,
        cache: DiskCache | None = None,
        folder: Path | None = None,
    ) -> None:
        """Use a bucket, as `S3Files` does."""
        self.files: Final = S3Files(
            bucket,
            compresses=compresses,
            sizes=sizes,
            holds=holds,
            locks=locks,
            cache=cache,
            folder=folder,
        )
        self._threads: Final = Threads("s3", _AT_ONCE)
        super().__init__(self.files, self._threads, look_seconds)

    @property
    def run(self) -> Runner:
        """Return the runner that makes calls of `files` in threads."""
        return self._run

    def close(self) -> None:
        """Release the store and its threads. Blocks."""
        super().close()
        self._threads.close()

    async def open_staged(self, upload_id: str, data_key: DataKey | None = None) -> OpenObject:
        """Open staged bytes that grow (`BlobReader.open_staged`)."""
        opened = await self._run(
            self.files.open_staged, upload_id, data_key, undo=lambda each: each.close()
        )
        if isinstance(opened, GrowingUpload):
            return GrowingObject(opened, upload_id, self._run, self.signals, self._look_seconds)
        return ThreadedObject(opened, self._run)

    async def stage(
        self,
        upload_id: str,
        data_key: DataKey | None,
        algorithm: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> Staged:
        """Begin to stage bytes under a new id (`BlobWriter.stage`)."""
        if not is_fresh:
            return await super().stage(upload_id, data_key, algorithm)

        def begin() -> S3Staged:
            return self.files.stage(upload_id, algorithm, data_key, is_fresh=True)

        return self._staged(None, upload_id, begin)

    async def delete(self, object_ids: Sequence[str]) -> Deleted:
        """Delete the bytes of objects (`BlobSweeper.delete`)."""
        return await self._run(self.files.delete_every, object_ids)


if TYPE_CHECKING:
    _: type[BlobStore] = S3Store
