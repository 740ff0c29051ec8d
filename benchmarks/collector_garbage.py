"""Make garbage: blobs that no manifest references, as rows and as files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from benchmarks.scale_data import DAY, Rows
from benchmarks.scale_site import Site

SIZE: Final = 1024
"""Bytes of a blob."""


class Blob(NamedTuple):
    """A blob that nothing references."""

    id: str
    digest: str


Put = Callable[[Site, Sequence[Blob]], None]


def put_files(site: Site, blobs: Sequence[Blob]) -> None:
    """Store the bytes of blobs as files."""
    objects = site.data / "blobs" / "objects"
    for blob in blobs:
        (objects / blob.id[-2:] / blob.id).write_bytes(bytes(SIZE))
    os.sync()  # blobs that become garbage are on the disk


def add_garbage(site: Site, count: int, put: Put = put_files) -> None:
    """Store `count` blobs in the large repository of a site, which may be served meanwhile."""
    blobs = [_blob() for _ in range(count)]
    put(site, blobs)
    for rows in rows_of(site, blobs):
        site.store.add(rows)


def add_foreign_garbage(data: Path, repository: str, count: int) -> None:
    """Store `count` blobs in the folders of CNCF Distribution."""
    root = data / "docker" / "registry" / "v2"
    for blob in (_blob() for _ in range(count)):
        value = blob.digest.removeprefix("sha256:")
        stored = root / "blobs" / "sha256" / value[:2] / value / "data"
        link = root / "repositories" / repository / "_layers" / "sha256" / value / "link"
        for file, content in ((stored, bytes(SIZE)), (link, blob.digest.encode())):
            file.parent.mkdir(parents=True)
            file.write_bytes(content)
    os.sync()


def stored_files(site: Site) -> int:
    """Return the number of objects in the blob store of a site."""
    return sum(1 for _ in (site.data / "blobs" / "objects").glob("*/*"))


def _blob() -> Blob:
    random = os.urandom(16)
    begun = (time.time_ns() // 1_000_000 - 2 * DAY // 1000).to_bytes(6)
    value = int.from_bytes(begun + random[6:]) & ~(0xF << 76) & ~(0b11 << 62)
    return Blob(str(UUID(int=value | 7 << 76 | 0b10 << 62)), f"sha256:{sha256(random).hexdigest()}")


def rows_of(site: Site, blobs: Sequence[Blob]) -> Iterator[Rows]:
    """Yield the rows of blobs that are in the large repository, and in no manifest."""
    contents = site.contents
    old = contents.now - 2 * DAY
    account_id, repository_id = contents.account_id, contents.repository_id

    def objects() -> Iterator[tuple[Any, ...]]:
        for blob in blobs:
            yield blob.id, account_id, blob.digest, SIZE, SIZE, "plain", True, "live", old, blob.id

    def links() -> Iterator[tuple[Any, ...]]:
        for blob in blobs:
            yield repository_id, blob.digest, account_id, blob.id, SIZE, 0, old

    columns = "id,account_id,digest,size,stored_size,encoding,is_current,state,created_at,stored_id"
    yield Rows("blob_objects", columns, objects())
    columns = "repository_id,digest,account_id,object_id,size,manifest_refs,touched_at"
    yield Rows("repository_blobs", columns, links())
