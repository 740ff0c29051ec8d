"""Backups of which bytes are damaged, and registries: what is told, and what heals them."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.rows import insert_new
from cloudcore.db.statement import Statement
from cloudcore.storage.tables import storage_pieces
from registry.backup.objects import damaged_inline
from registry.blobstore.disk.folders import object_path
from registry.blobstore.disk.store import FilesystemStore
from registry.metadata.repositories.repository import find_account
from registry.oci.digest import digest_of
from registry.settings.groups import Limits
from tests.inprocess import Registry
from tests.integration.backup_world import (
    LATER,
    LAYER,
    Site,
    object_file,
    on_both,
    pulled,
    pushed,
    site,
)
from tests.keyed_registry import open_keyed_registry
from tests.memory_store import MemoryStore

pytestmark = pytest.mark.usefixtures("no_settings")

_CONDEMNED: Final[dict[str, object]] = {
    "number": 1,
    "size": 9,
    "stored_size": 9,
    "encoding": "plain",
    "md5": "0" * 32,
    "sha256": "0" * 64,
    "created_at": 1,
    "condemned_at": 1,
    "verified_at": 1,
}
_CONDEMN: Final = Statement(insert_new(storage_pieces, ("id", "account_id", *_CONDEMNED)))

__all__ = ["site"]


def test_verify_finds_a_damaged_copy_and_copies_it_again(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push_and_back_up()
    copy = object_file(site.target / "objects", LAYER)
    copy.write_bytes(LAYER[:-1] + b"?")
    assert site.back_up() == 0
    assert copy.read_bytes() != LAYER  # its size is right
    assert site.back_up("--verify") == 0
    assert copy.read_bytes() == LAYER
    assert site.manifest().is_verified


def test_verify_hashes_sealed_blobs_too(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    layer = b"sealed" * 20_000

    async def push() -> None:
        url = f"sqlite:///{site.data / 'metadata.db'}"
        with site.opened_store(site.data) as store:
            async with open_keyed_registry(url, store) as keyed:
                target = f"/v2/dev/app/blobs/uploads/?digest={digest_of(layer)}"
                assert (await keyed.client.request("POST", target, layer)).status == 201

    asyncio.run(push())
    assert site.back_up("--verify") == 0
    (name,) = site.objects()
    copy = site.target / "objects" / object_path(name)
    sealed = copy.read_bytes()
    damaged = sealed[:-1] + bytes([sealed[-1] ^ 1])
    copy.write_bytes(damaged)
    assert site.back_up("--verify") == 0
    assert copy.read_bytes() == sealed
    copy.unlink()
    (site.data / "blobs" / "objects" / object_path(name)).write_bytes(damaged)
    assert site.back_up("--verify") == 1
    assert f"blob {digest_of(layer)}: its bytes hash to blake3:" in capsys.readouterr().out


def test_a_blob_that_is_damaged_here_is_named_and_copied_again_once_it_is_healed(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LAYER), site.data)
    stored = object_file(site.data / "blobs" / "objects", LAYER)
    stored.write_bytes(LAYER[:-1] + b"?")
    assert site.back_up("--verify") == 1
    told = capsys.readouterr().out
    assert f"blob {digest_of(LAYER)}: its bytes hash to sha256:" in told
    assert [each.digest for each in site.manifest().damaged] == [str(digest_of(LAYER))]
    stored.unlink()
    assert site.back_up() == 1
    assert f"blob {digest_of(LAYER)}: its bytes are gone" in capsys.readouterr().out
    stored.mkdir()  # cannot be read, as on a disk that fails
    assert site.back_up() == 1
    assert f"blob {digest_of(LAYER)}: its bytes cannot be read" in capsys.readouterr().out
    stored.rmdir()
    stored.write_bytes(LAYER)
    assert site.back_up() == 0
    assert site.manifest().damaged == []
    assert object_file(site.target / "objects", LAYER).exists()


async def test_damaged_bytes_in_the_database_are_told_by_length_and_if_verified_by_hash(
    sqlite_database: str,
) -> None:
    """Plain ones have their digest, sealed ones a checksum of what is stored."""
    async with open_keyed_registry(sqlite_database, MemoryStore(), Limits()) as keyed:
        others: set[bytes] = set()
        for content, client, words in (
            (b"plain", keyed.registry.client, "its bytes hash to sha256:"),
            (b"sealed", keyed.client, "its stored bytes do not have their checksum"),
        ):
            digest = digest_of(content)
            path = f"/v2/dev/app/blobs/uploads/?digest={digest}"
            assert (await client.request("POST", path, content)).status == 201
            (kept,) = set(await keyed.bodies()) - others
            others.add(kept)
            for body, problem, is_told in (
                (kept, "", (False, False)),
                (bytes(len(kept)), words, (False, True)),
                (kept + b"x", f"{len(kept) + 1} bytes instead of {len(kept)}", (True, True)),
            ):
                await keyed.set_body(digest, body)
                for verifies in (False, True):
                    found = await keyed.database.read(damaged_inline, verifies=verifies)
                    assert bool(found) is is_told[verifies]
                    assert all(each.digest == digest for each in found)
                    assert all(problem in each.problem for each in found)
            await keyed.set_body(digest, kept)


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Let the disk fail in the block when this file is opened, under any of its names."""
    failing, opened = path.stat().st_ino, Path.open

    def open_or_fail(self: Path, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if self.exists() and self.stat().st_ino == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self))
        return opened(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "open", open_or_fail)
        yield


def test_a_linked_blob_that_cannot_be_verified_is_named_and_keeps_no_other_from_the_backup(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve(pushed(LAYER), site.data)
    site.serve(pushed(LATER), site.data)
    with unreadable(object_file(site.data / "blobs" / "objects", LAYER)):
        assert site.back_up("--link", "--verify") == 1
    assert f"blob {digest_of(LAYER)}: its bytes cannot be read" in capsys.readouterr().out
    assert [each.digest for each in site.manifest().damaged] == [str(digest_of(LAYER))]
    assert object_file(site.target / "objects", LATER).exists()
    assert site.back_up("--link", "--verify") == 0
    assert site.manifest().damaged == []


def test_a_copy_that_cannot_be_read_is_copied_again(site: Site) -> None:
    site.push_and_back_up()
    copy = object_file(site.target / "objects", LAYER)
    with unreadable(copy):
        assert site.back_up("--verify") == 0
    assert copy.read_bytes() == LAYER


def test_a_damaged_backup_says_what_is_damaged_before_it_says_what_to_do(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether it was damaged when it was taken, or has rotted since; `serve` is no next step."""
    site.push_and_back_up()
    object_file(site.target / "objects", LAYER).write_bytes(LAYER[:-1] + b"?")
    capsys.readouterr()
    assert site.restore() == 1
    told = capsys.readouterr().out
    found = f"blob {digest_of(LAYER)}: "
    damage = "The restored registry is damaged (damaged blobs: 1, images that need them: 1), as"
    steps = [
        found,
        damage,
        "  restore a backup",
        "  or bring",
        "entrepot fsck --data",
        "  or serve",
    ]
    places = [told.index(each) for each in steps]
    assert places == sorted(places)
    assert "Next:" not in told

    shutil.rmtree(site.restored)
    object_file(site.data / "blobs" / "objects", LAYER).unlink()
    assert site.back_up("--verify") == 1
    capsys.readouterr()
    assert site.restore("--quick") == 1
    told = capsys.readouterr().out
    known = f"blob {digest_of(LAYER)}, as the backup was taken: its bytes are gone"
    assert told.index(known) < told.index("0 orphans") < told.index(damage)

    shutil.rmtree(site.restored)
    site.push_and_back_up()
    assert site.restore() == 0
    told = capsys.readouterr().out
    assert "Next:\n  entrepot serve" in told
    assert "is damaged" not in told


def test_a_blob_that_a_push_has_healed_is_copied_under_its_new_id(site: Site) -> None:
    site.serve(pushed(LAYER), site.data)
    stored = object_file(site.data / "blobs" / "objects", LAYER)
    stored.write_bytes(LAYER[:-1])
    assert site.back_up() == 1
    site.serve(pushed(LAYER), site.data)
    assert stored.read_bytes() == LAYER[:-1]  # in quarantine
    assert site.back_up() == 0
    assert site.objects() == site.objects(site.data / "blobs" / "objects") - {stored.name}
    assert object_file(site.target / "objects", LAYER) != stored
    shutil.rmtree(site.data)
    assert site.restore() == 0
    site.serve(pulled(LAYER), site.restored)


@on_both
def test_a_piece_that_nobody_needs_any_more_is_not_missed(site: Site) -> None:
    """Its bytes are deleted before its row is."""

    async def condemn(registry: Registry, _: FilesystemStore) -> None:
        await registry.ctx.database.write(add, registry.account)

    def add(tx: Connection, handle: str) -> None:
        account = find_account(tx, handle)
        assert account is not None
        tx.execute(_CONDEMN, id=uuid7(), account_id=account.id, **_CONDEMNED)

    site.serve(condemn, site.data)
    (site.data / "buckets" / "objects").mkdir(parents=True, exist_ok=True)
    assert site.back_up() == 0
    assert site.manifest().damaged == []
