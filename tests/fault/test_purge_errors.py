"""A store that fails for one file: the purge and the orphans' quarantine go on with the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, cast

import pytest

from cloudcore.clock import uuid7
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.sweeper import Orphan
from registry.blobstore.threaded_store import ThreadedStore
from registry.errors import StoreUnavailable
from registry.gc.orphans import blobs_of
from registry.gc.purge import discard_expired_uploads
from tests.inprocess import Registry, open_registry
from tests.memory_store import MemoryFiles, at_once

DATA: Final = b"a layer"


class Refusing(MemoryFiles):
    """Fails to change the bytes of one id."""

    bad = ""

    def discard(self, upload_id: str) -> None:
        """Refuse, or discard."""
        self._check(upload_id)
        super().discard(upload_id)

    def take_back(self, object_id: str) -> bool:
        """Refuse, or put back."""
        self._check(object_id)
        return super().take_back(object_id)

    def delete_orphan(self, orphan: Orphan) -> None:
        """Refuse, or delete."""
        self._check(orphan.object_id)
        super().delete_orphan(orphan)

    def _check(self, object_id: str) -> None:
        if object_id == self.bad:
            raise StoreUnavailable("the blob store failed (EIO)")


class RefusingStore(ThreadedStore):
    """A store of such files."""

    def __init__(self) -> None:
        self.files: Final = Refusing()
        super().__init__(cast("DiskFiles", self.files), at_once, look_seconds=3600)


@pytest.fixture
def store() -> RefusingStore:
    """Return a store that may refuse."""
    return RefusingStore()


@pytest.fixture
async def registry(sqlite_database: str, store: RefusingStore) -> AsyncIterator[Registry]:
    """Return a registry over the store."""
    async with open_registry(sqlite_database, store) as registry:
        yield registry


async def begin(registry: Registry, store: RefusingStore) -> str:
    """Open an upload session with some bytes; return the id under which they are staged."""
    ask, before = registry.client.request, set(store.files.staged)
    location = (await ask("POST", "/v2/dev/app/blobs/uploads/")).headers["location"]
    assert (await ask("PATCH", location, DATA)).status == 202
    (staged,) = set(store.files.staged) - before
    return staged


async def test_one_upload_that_cannot_be_discarded_keeps_no_other(
    registry: Registry, store: RefusingStore
) -> None:
    first, *_ = [await begin(registry, store) for _ in range(3)]
    registry.clock.advance(25 * 3600)
    store.files.bad = first
    with pytest.raises(StoreUnavailable):
        await discard_expired_uploads(registry.ctx)
    assert list(store.files.staged) == [first]
    store.files.bad = ""
    registry.clock.advance(3600)
    assert await discard_expired_uploads(registry.ctx) == 1
    assert not store.files.staged


async def test_one_orphan_that_cannot_be_moved_or_deleted_keeps_no_other(
    registry: Registry, store: RefusingStore, caplog: pytest.LogCaptureFixture
) -> None:
    owned = [await begin(registry, store) for _ in range(2)]
    unowned = [uuid7(registry.clock()) for _ in range(2)]
    for each in unowned:
        await (await store.stage(each, None)).aclose()
    for each in (*owned, *unowned):
        assert await store.set_aside(each, 1)
    for bad, kept in ((owned[0], {owned[0]}), (unowned[0], {unowned[0]})):
        store.files.bad = bad
        await blobs_of(registry.ctx, store).tend()
        assert set(store.files.orphans) == kept
        assert "the blob store failed (EIO)" in caplog.text
        caplog.clear()
        store.files.bad = ""
        store.files.orphans |= {each: (Orphan(each, 1, False, 0), b"") for each in unowned}
