"""Read and write the files of a cluster in a bucket, in the name of the bucket's account.

So the quota of the account and the KMS key of the bucket apply to backups as to other objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol, TypeVar

from cloudcore.databases.archive import BackupTarget, BucketGone
from cloudcore.errors import PlatformError
from cloudcore.storage import multipart, objects, reading, storing
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.multipart import Completion, GivenPart
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.object_rows import Entry, Facts, list_page
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.storage.upload_rows import Upload

T = TypeVar("T")

PART_BYTES: Final = 64 << 20
"""Of an object that comes as a stream: 10,000 parts are 625 GiB."""
_PAGE: Final = 500


class Source(Protocol):
    """A source of bytes, such as the output of a program."""

    async def read(self, count: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        ...


def text(content: bytes) -> Source:
    """Return a few bytes as a source."""
    made = asyncio.StreamReader()
    made.feed_data(content)
    made.feed_eof()
    return made


def folder_of(cluster_id: str) -> str:
    """Return the prefix of all keys of a cluster."""
    return f"entrepot/{cluster_id}/"


async def find_bucket(needs: StorageNeeds, target: BackupTarget) -> Bucket:
    """Return the bucket of a cluster's backups.

    Raises:
        BucketGone: it was deleted.

    """
    found = await needs.database.read(BUCKET_ROWS.find, target.account_id, target.bucket_id)
    if found is None:
        raise BucketGone("the bucket of the cluster's backups was deleted")
    return found


async def list_files(needs: StorageNeeds, bucket: Bucket, prefix: str) -> Sequence[Entry]:
    """Return all objects whose keys begin with a prefix."""
    found: list[Entry] = []
    after: str | None = ""
    while after is not None:
        page = await needs.database.read(list_page, bucket, prefix, "", after, _PAGE)
        found += page.entries
        after = page.next_after
    return found


async def delete_files(needs: StorageNeeds, bucket: Bucket, prefix: str) -> None:
    """Delete all objects whose keys begin with a prefix."""
    while True:
        page = await needs.database.read(list_page, bucket, prefix, "", "", _PAGE)
        if not page.entries:
            return
        keys = [entry.key for entry in page.entries]
        await needs.database.write(
            objects.delete_objects, bucket, keys, needs.clock(), needs.events
        )


async def store(needs: StorageNeeds, bucket: Bucket, key: str, source: Source) -> int:
    """Store the bytes of a source as one object, completely or not at all; return its size.

    Raises:
        PlatformError: the account has no room, the KMS key is closed, or the store failed.

    """
    now = needs.clock()
    upload = Upload(needs.new_id(), bucket.id, bucket.account_id, key, Facts(), None, None, now)
    await needs.database.write(multipart.create_upload, bucket, upload, needs.bytes)
    try:
        parts: list[GivenPart] = []
        size = 0
        while True:
            part = _Part(source)
            number = len(parts) + 1
            piece = await storing.store_part(needs, bucket, upload.id, number, part)
            size += part.size
            parts.append(GivenPart(number, piece.md5))
            if part.is_last:
                break
        asked = Completion(upload.id, parts, needs.new_id())
        await needs.database.write(
            multipart.complete_upload, bucket, asked, needs.clock(), needs.events
        )
    except BaseException:
        await asyncio.shield(needs.database.write(_abort, bucket, upload.id, needs.clock()))
        raise
    return size


async def read(needs: StorageNeeds, bucket: Bucket, key: str) -> AsyncIterator[bytes]:
    """Yield the bytes of an object.

    Raises:
        PlatformError: it is not there, its KMS key is closed, or the store failed.

    """
    found = await reading.find_object(needs, bucket, key)
    async with aclosing(await reading.open_object(needs, found)) as opened:
        async for part in opened.stream():
            yield part


def _abort(tx: object, bucket: Bucket, upload_id: str, now: int) -> None:
    try:
        multipart.abort_upload(tx, bucket, upload_id, now)  # type: ignore[arg-type]
    except PlatformError:  # it is complete after all, or the bucket is gone
        return


class _Part:
    """The next `PART_BYTES` of a source, as the body of a part."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.size = 0
        self.is_last = False

    async def __call__(
        self, sink: Callable[[memoryview], None], finish: Callable[[bool], T], /
    ) -> T:
        while self.size < PART_BYTES:
            data = await self._source.read(min(1 << 18, PART_BYTES - self.size))
            if not data:
                self.is_last = True
                break
            self.size += len(data)
            await asyncio.to_thread(sink, memoryview(data))
        return await asyncio.to_thread(finish, True)  # noqa: FBT003 - the signature of an end
