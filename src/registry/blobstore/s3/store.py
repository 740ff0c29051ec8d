"""The blob store in a bucket: all calls run in threads, since each waits for the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.threads import Runner, Threads
from registry.blobstore.base import DataKey, Deleted
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.staged import S3Staged
from registry.blobstore.store import BlobStore

_AT_ONCE: Final = 32
_LOOK_SECONDS: Final = 0.5
"""Time between polls for a commit by another process; each poll is a request."""


class S3Store(BlobStore):
    """A blob store in a bucket; `files` are its blocking calls, closed with the store."""

    def __init__(self, files: S3Files, look_seconds: float = _LOOK_SECONDS) -> None:
        self.files: Final = files
        super().__init__(files, Threads("s3", _AT_ONCE), look_seconds)

    @property
    def run(self) -> Runner:
        """Return the runner that makes calls of `files` in threads."""
        return self._run

    def _stage_fresh(
        self, upload_id: str, algorithm: str | None, data_key: DataKey | None
    ) -> S3Staged:
        return self.files.stage(upload_id, algorithm, data_key, is_fresh=True)

    async def delete(self, object_ids: Sequence[str]) -> Deleted:
        """Delete the bytes of objects (`BlobSweeper.delete`)."""
        return await self._run(self.files.delete_every, object_ids)
