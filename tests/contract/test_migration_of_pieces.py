"""Revision 0040 over buckets with bytes: they are counted, due for a scrub, and read as before."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from alembic import command

from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.storage.account_bytes import used_bytes
from cloudcore.storage.recounts import miscounts
from registry.blobstore.filesystem import FilesystemStore
from registry.gc.piece_marks import all_pieces
from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.databases import opened
from tests.kms_world import KEYRING, KmsWorld
from tests.storage_world import ACME, GLOBEX, open_storage_world, storage_world

LARGE = b"0123456789" * 1000


async def test_buckets_of_before_are_counted_and_scrubbed(bare_url: str, tmp_path: Path) -> None:
    await asyncio.to_thread(migrate, bare_url)
    async with opened(bare_url) as database, open_storage_world(database, tmp_path) as world:
        bucket, other = await world.make(), await world.make("other", GLOBEX)
        await world.put(bucket, "large", LARGE)
        await world.put(bucket, "few", b"few")
        await world.put(bucket, "gone", b"gone")
        await world.delete(bucket, "gone")
        upload = await world.begin(bucket, "parts")
        part = await world.part(bucket, upload, 1, b"part")
        await world.put(other, "kept", LARGE)
        stored = [row async for row in all_pieces(database)]
    with migration_connection(bare_url) as connection:
        command.downgrade(configuration(connection), "0039")
    await asyncio.to_thread(migrate, bare_url)
    async with opened(bare_url) as database:
        assert await database.read(miscounts) == []
        # What was deleted within the hour counts until its bytes are gone.
        assert await database.read(used_bytes, ACME) == len(LARGE) + len(b"fewgonepart")
        assert await database.read(used_bytes, GLOBEX) == len(LARGE)
        found = [row async for row in all_pieces(database)]
        assert found == stored
        assert all(row.verified_at for row in found)
        kms = KmsWorld(database, Providers(EmbeddedProvider(KEYRING)), world.clock)
        with closing(FilesystemStore(tmp_path)) as store:
            later = storage_world(database, store, kms)
            assert await later.get(bucket, "large") == LARGE
            await later.complete(bucket, upload, part)
            assert await later.get(bucket, "parts") == b"part"
