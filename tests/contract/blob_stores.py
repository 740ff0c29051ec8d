"""The implementations of blob stores, and how tests write to them, read and list them."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing, closing, contextmanager
from pathlib import Path
from typing import Final, TypeVar, cast

from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.parts import part_bytes
from registry.blobstore.s3.store import S3Store
from registry.blobstore.sealed.frame_format import sealed_size
from registry.blobstore.store import BlobStore, Staged
from registry.oci.digest import digest_of
from tests.memory_store import MemoryStore
from tests.packed_bytes import compressed_bytes
from tests.s3_servers import SERVERS, credentials, settings_for
from tests.sealing_store import SealingStore
from tests.small_frames import KEY

T = TypeVar("T")
DATA = random.Random(7).randbytes(350_001).hex().encode()[:700_001]
"""Bytes of which compression saves nearly a half."""
KINDS: Final = (
    *("filesystem", "memory", "filesystem-sealed", "memory-sealed"),
    *("filesystem-packed", "memory-packed"),
    *("moto", "moto-packed", "seaweedfs", "seaweedfs-sealed", "entrepot"),
)
PLAIN_KINDS: Final = ("filesystem", "memory", "moto", "seaweedfs", "entrepot")
"""One of each place, not sealed: for what does not depend on the bytes of an object."""
_SMALL_PARTS: Final = 100_000
"""Of moto, which takes parts of any size: `DATA` has several, unless it is packed."""


@contextmanager
def opened_store(kind: str, folder: Path) -> Iterator[BlobStore]:
    """Open an empty store of a kind."""
    place, _, sealed = kind.partition("-")
    packed = sealed == "packed"
    with ExitStack() as stack:
        found: BlobStore
        if place == "memory":
            found = MemoryStore(compresses=packed)
        elif place in SERVERS:
            stack.enter_context(credentials(place))
            sizes = small_parts if place == "moto" else part_bytes
            bucket = Bucket(settings_for(place))
            found = stack.enter_context(
                closing(S3Store(S3Files(bucket, compresses=packed, sizes=sizes), 0.02))
            )
        else:
            found = stack.enter_context(closing(FilesystemStore(folder, compresses=packed)))
        yield cast("BlobStore", SealingStore(found, KEY)) if sealed else found


def small_parts(number: int) -> int:
    """Return the size of a part of moto."""
    return _SMALL_PARTS + number


def keeps_unflushed(store: BlobStore) -> bool:
    """Return True if bytes that were not flushed are there after their hold."""
    found = store.store if isinstance(store, SealingStore) else store
    return not isinstance(found, S3Store)


def ends_copied(store: BlobStore) -> bool:
    """Return True if a copy may end the upload that it is made of, for its former writer."""
    return not keeps_unflushed(store)


def is_sealing(store: BlobStore) -> bool:
    return isinstance(store, SealingStore)


def store_has_frames(store: BlobStore) -> bool:
    """Return True if staged bytes are sealed frame by frame."""
    return isinstance(store, SealingStore) and not isinstance(store.store, MemoryStore)


def is_packing(store: BlobStore) -> bool:
    return isinstance(store, SealingStore) and store.files.compresses


def stored_size(store: BlobStore, size: int) -> int:
    """Return how many bytes the first `size` bytes of `DATA` have in the store."""
    if is_packing(store):
        return len(compressed_bytes(DATA[:size], KEY, new_id()))
    return sealed_size(size) if is_sealing(store) else size


async def staged_sizes(store: BlobStore, *expected: tuple[str, int]) -> bool:
    """Return True if these are staged; of sealed ones the last frame may be in memory."""
    found = await listed(store.list_staged())
    if is_sealing(store):
        return [each.object_id for each in found] == [upload_id for upload_id, _ in expected]
    return found == list(expected)


def new_id() -> str:
    return str(uuid.uuid4())


def write(staged: Staged, data: bytes) -> None:
    staged.write(memoryview(data))


async def listed(entries: AsyncIterator[T]) -> list[T]:
    return [entry async for entry in entries]


async def put(store: BlobStore, data: bytes) -> str:
    async with aclosing(await store.stage(new_id(), None)) as staged:
        write(staged, data)
        return staged.commit(digest_of(data)).object_id


async def read(store: BlobStore, object_id: str, start: int = 0, stop: int | None = None) -> bytes:
    async with aclosing(await store.open(object_id)) as stored:
        chunks = b"".join(bytes(chunk) for chunk in stored.chunks(start, stop))
        assert b"".join([part async for part in stored.stream(start, stop)]) == chunks
        return chunks
