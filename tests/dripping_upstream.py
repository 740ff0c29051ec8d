"""An upstream in this process: it sends blobs in pieces, as far as it is let, and lies if told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from registry.oci.digest import Digest, digest_of
from registry.upstream.base import (
    BlobStream,
    FetchedManifest,
    ListedTags,
    ManifestHead,
    NotUpstream,
    Remote,
    UpstreamFailed,
    UpstreamUnreachable,
)
from registry.upstream.client import RegistryClient

PIECE_BYTES = 64 * 1024


class Asked(NamedTuple):
    """A request for a blob."""

    digest: str
    start: int


class DrippingUpstream(RegistryClient):
    """Has blobs by their digests, or what it says that has them."""

    def __init__(
        self, *blobs: bytes, piece_bytes: int = PIECE_BYTES, allowed: int | None = None
    ) -> None:
        """Have these blobs, and send them up to an offset; see `allow`."""
        self.blobs = {str(digest_of(blob)): blob for blob in blobs}
        self.asked: list[Asked] = []
        self.heads: list[str] = []
        self.was_asked = asyncio.Event()
        """Set by HEAD."""
        self.failure: UpstreamFailed | None = None
        """Raised instead of an answer."""
        self.tells_size = True
        self.said_size: int | None = None
        """Said instead of the true size."""
        self.takes_ranges = True
        self.breaks_at: list[int] = []
        """Where the next requests break off."""
        self._piece_bytes = piece_bytes
        self._allowed = allowed
        self._more = asyncio.Event()

    def allow(self, count: int | None) -> None:
        """Send the bytes of blobs up to this offset, and then wait; None: send all."""
        self._allowed = count
        self._more.set()

    async def head_blob(self, remote: Remote, digest: Digest) -> int | None:
        self.heads.append(digest)
        self.was_asked.set()
        if self.failure is not None:
            raise self.failure
        if digest not in self.blobs:
            raise NotUpstream
        return len(self.blobs[digest]) if self.tells_size else None

    @asynccontextmanager
    async def open_blob(
        self,
        remote: Remote,
        digest: Digest,
        start: int = 0,
    ) -> AsyncIterator[BlobStream]:
        self.asked.append(Asked(digest, start))
        if self.failure is not None:
            raise self.failure
        if digest not in self.blobs:
            raise NotUpstream
        blob = self.blobs[digest]
        start = start if self.takes_ranges else 0
        size = self.said_size or len(blob) if self.tells_size else None
        yield BlobStream(start, size, self._pieces(blob, start))

    async def _pieces(self, blob: bytes, start: int) -> AsyncIterator[bytes]:
        stop = self.breaks_at.pop(0) if self.breaks_at else None
        while start < len(blob):
            while self._allowed is not None and start >= self._allowed:
                self._more.clear()
                await self._more.wait()
            if stop is not None and start >= stop:
                raise UpstreamUnreachable("the connection was reset")
            end = min(start + self._piece_bytes, len(blob))
            end = end if stop is None else min(end, stop)
            end = end if self._allowed is None else min(end, self._allowed)
            yield blob[start:end]
            start = end
            await asyncio.sleep(0)

    async def head_manifest(
        self,
        remote: Remote,
        reference: str | Digest,
        known_etag: str | None = None,
    ) -> ManifestHead | None:
        raise NotUpstream

    async def get_manifest(self, remote: Remote, reference: str | Digest) -> FetchedManifest:
        raise NotUpstream

    async def ping(self, remote: Remote) -> int:
        return 200

    async def list_tags(self, remote: Remote) -> ListedTags:
        raise NotUpstream

    async def get_referrers(self, remote: Remote, subject: Digest) -> bytes | None:
        return None
