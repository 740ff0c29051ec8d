"""Nodes that write to one upload at once: only one at a time acknowledges, and nothing is lost.

``LEASE_RUNS`` says how many orders are tried, ``LEASE_SEED`` where to begin; ``SOAK=20`` makes it
twenty times as many.
"""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import bindparam, literal_column, null

from cloudcore.db.statement import Statement
from registry.blobstore.base import ObjectUnknown
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.store import BlobStore
from registry.metadata.blobs import uploads as rows
from registry.metadata.tables import uploads as table
from registry.services.blobs import staged_uploads
from tests.memory_store import MemoryStore, at_once
from tests.property.interleaved_stores import OneConnection
from tests.property.interleaving import no_other_threads
from tests.property.lease_world import World, noted
from tests.soak import time_limit, times

RUNS: Final = int(os.environ.get("LEASE_RUNS", times(150)))
SEED: Final = int(os.environ.get("LEASE_SEED", "0"))
ENOUGH: Final = 150
TALLIED: Final = (
    *("acknowledged", "taken", "copied", "fenced", "finish", "cancel", "died"),
    *("plain", "sealed"),
)

pytestmark = time_limit(120)


class _NeverHeld(set[str]):
    """No id is ever held: these writers are on different machines."""

    def add(self, _: str) -> None:
        pass


def in_memory() -> BlobStore:
    """Return a store in memory that several writers of the same bytes may open."""
    store = MemoryStore()
    store.files.held = _NeverHeld()
    return store


@pytest.fixture
def database(migrated_file: Path) -> Iterator[OneConnection]:
    connection = OneConnection(migrated_file)
    with no_other_threads():
        yield connection
    connection.raw.close()


def explore(database: OneConnection, make_store: Callable[[], BlobStore], runs: int) -> World:
    """Try orders; return what happened in all."""
    world = World(database, random.Random())
    for seed in range(SEED, SEED + runs):
        world.open(seed, make_store)
        try:
            with noted(world, seed):
                world.play()
        finally:
            world.close()
    return world


def test_no_order_loses_or_mixes_acknowledged_bytes(database: OneConnection) -> None:
    world = explore(database, in_memory, RUNS)
    if RUNS >= ENOUGH:
        assert all(world.tally[what] for what in TALLIED), world.tally


def test_nor_does_any_order_on_a_disk(
    database: OneConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)  # as on different machines
    with closing(DiskFiles(tmp_path)) as files:
        explore(database, lambda: BlobStore(files, at_once, 3600), RUNS // 4)


def test_a_holder_that_went_on_in_place_would_be_found(
    database: OneConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_uploads, "_copy", staged_uploads._open_in_place)
    # KeyError: of the store in memory, where two holders take back the same object.
    with pytest.raises((AssertionError, KeyError, ObjectUnknown)):
        explore(database, in_memory, 2000)


def test_a_change_that_did_not_name_its_token_would_be_found(
    database: OneConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfenced = Statement(
        table.update()
        .where(table.c.id == bindparam("upload_id"))
        .values(
            received_bytes=bindparam("received"),
            digests=bindparam("known_digests"),
            stage_id=bindparam("stage"),
            stage_shared=literal_column("false"),
            expires_at=bindparam("expires"),
            lease_holder=null(),
            leased_until=null(),
        )
    )
    monkeypatch.setattr(rows, "_ADVANCE", unfenced)
    # ValueError: the store is to continue sealed bytes behind their end.
    with pytest.raises((AssertionError, ObjectUnknown, ValueError)):
        explore(database, in_memory, 2000)
