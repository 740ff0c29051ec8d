"""Damage where two parts meet: in quarantine, and while fsck reads on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cloudcore.objects import damage
from registry.blobstore.disk.store import FilesystemStore
from registry.errors import DigestMismatch, StoreUnavailable
from registry.gc.recovery import recover_blob
from registry.metadata.blobs.objects import BLOB_ROWS
from registry.metadata.repositories.repository import find_repository
from registry.oci.digest import digest_of
from registry.settings.groups import Delays
from tests.collecting import collect
from tests.inprocess import Registry, open_registry
from tests.integration.damaged import cut, file_of, flip, grow, marked, unreadable
from tests.keyed_registry import open_keyed_registry

BLOB: Final = b"layer" * 1000
DIGEST: Final = digest_of(BLOB)


async def push(registry: Registry) -> None:
    target = f"/v2/dev/one/blobs/uploads/?digest={DIGEST}"
    assert (await registry.client.request("POST", target, BLOB)).status == 201


@pytest.mark.parametrize("harm", [flip, cut, grow])
async def test_a_blob_damaged_in_quarantine_is_not_brought_back(
    sqlite_database: str, store: FilesystemStore, blobs: Path, harm: Callable[[Path], None]
) -> None:
    async with open_registry(sqlite_database, store) as registry:
        await push(registry)
        file = await file_of(registry, blobs, DIGEST)
        ask = registry.client.request
        assert (await ask("DELETE", f"/v2/dev/one/blobs/{DIGEST}")).status == 202
        swept = Delays(gc_grace_seconds=0, gc_condemned_seconds=0)
        account = await registry.account_id()
        await collect(replace(registry.ctx, delays=swept), store, account)
        harm(file)
        one = await registry.ctx.database.read(find_repository, registry.account, "one")
        assert one is not None
        with pytest.raises(DigestMismatch):
            await recover_blob(registry.ctx, account, one.id, DIGEST)
        # A push begins anew, and what is damaged goes its way.
        await push(registry)
        assert (await ask("GET", f"/v2/dev/one/blobs/{DIGEST}")).body == BLOB


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_a_blob_in_quarantine_that_the_disk_does_not_read_stays_there(
    sqlite_database: str, store: FilesystemStore, blobs: Path, is_sealed: bool
) -> None:
    async with open_keyed_registry(sqlite_database, store) as keyed:
        client = keyed.client if is_sealed else keyed.registry.client
        target = f"/v2/dev/one/blobs/uploads/?digest={DIGEST}"
        assert (await client.request("POST", target, BLOB)).status == 201
        file = await file_of(keyed.registry, blobs, DIGEST)
        assert (await client.request("DELETE", f"/v2/dev/one/blobs/{DIGEST}")).status == 202
        swept = Delays(gc_grace_seconds=0, gc_condemned_seconds=0)
        await collect(replace(keyed.ctx, delays=swept), store, keyed.account_id)
        of = keyed.account_id, await keyed.repository_id("one"), DIGEST
        refusal = DigestMismatch if is_sealed else StoreUnavailable
        with unreadable(file), pytest.raises(refusal, match="the blob store failed"):
            await recover_blob(keyed.ctx, *of)
        assert (await client.request("GET", f"/v2/dev/one/blobs/{DIGEST}")).status == 404
        await recover_blob(keyed.ctx, *of)
        assert (await client.request("GET", f"/v2/dev/one/blobs/{DIGEST}")).body == BLOB


async def test_what_was_read_whole_and_marked_since_stays_marked(
    database_url: str, store: FilesystemStore, blobs: Path
) -> None:
    """fsck notes what it has read in batches: a blob may be found damaged in between."""

    async with open_registry(database_url, store) as registry:
        await push(registry)
        database = registry.ctx.database
        rows = await database.read(BLOB_ROWS.all, "", 10)
        cut(await file_of(registry, blobs, DIGEST))
        assert (await registry.client.request("GET", f"/v2/dev/one/blobs/{DIGEST}")).status == 404
        await database.write(BLOB_ROWS.confirm_all, rows, registry.clock())
        assert await marked(registry) == [(DIGEST, damage.SIZE)]
        # What is read whole after it was marked loses the mark.
        rows = await database.read(BLOB_ROWS.all, "", 10)
        await database.write(BLOB_ROWS.confirm_all, rows, registry.clock())
        assert await marked(registry) == []
