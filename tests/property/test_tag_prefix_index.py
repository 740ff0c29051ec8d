"""What is kept of the images under a prefix, against a recount, whatever happens in between.

The control plane's machine asks after every change; here many happen between two questions, and
history is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.opening import open_database
from cloudcore.db.statement import Statement
from cloudcore.errors import PlatformError
from registry.metadata.images.details import NEWEST, TagStatus
from registry.metadata.images.manifests import ManifestRow, NewManifest, add_manifest, find_manifest
from registry.metadata.repositories.repository import (
    Counts,
    RegistryAccount,
    Repository,
    add_to_counters,
    find_or_add_repository,
    find_visible_repository,
    lock_repository,
)
from registry.metadata.settings import AccountSettings, put_settings
from registry.metadata.tags import prefix_index as prefix_index_rows
from registry.metadata.tags.deleted import attach_deleted_tags
from registry.metadata.tags.history import forget_tag_events
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.changes import Change, RegistryHost
from registry.services.images.deletion import drop_image
from registry.services.images.details import list_images
from registry.services.images.restoration import restore_image
from registry.services.tags import prefix_index
from registry.services.tags.details import list_tag_page
from registry.services.tags.pointers import drop_tag, point_tag
from tests.databases import add_account
from tests.integration.counting import CountingConnection
from tests.recount import Query, querying
from tests.soak import times

T = TypeVar("T")
Step = tuple[str, int, str, str]

HOST: Final = RegistryHost("local", "localhost")
DAY: Final = 24 * 3600 * 10**6
PREFIXES: Final = ("v", "v", "v1", "w", "v2-and-more", "%")
TAGS: Final = ("v1", "v1.1", "v2", "w", "w1")
KINDS: Final = (
    *("push",) * 9,
    *("drop",) * 3,
    *("delete",) * 3,
    *("restore",) * 2,
    *("ask",) * 6,
    *("forget", "year"),
)
STEP = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, 4),
    st.sampled_from(TAGS),
    st.sampled_from(PREFIXES),
)

CARRIERS: Final = """
SELECT DISTINCT m.digest, m.id FROM tags t JOIN manifests m ON m.id = t.manifest_id
 WHERE t.repository_id = ? AND substr(t.name, 1, length(?)) = ? ORDER BY m.id DESC
"""
COUNT_TAGS: Final = """
SELECT count(*) FROM tags WHERE repository_id = ? AND substr(name, 1, length(?)) = ?
"""


class World(NamedTuple):
    """A database for all examples, and a way to it that is not the registry's."""

    loop: asyncio.AbstractEventLoop
    database: Database
    query: Query

    def write(self, change: Callable[[Connection], T]) -> T:
        return self.loop.run_until_complete(self.database.write_relaxed(change))

    def compare(self, history: History, prefix: str) -> None:
        asked = self.database.read(history.ask, prefix)
        digests, images, tags = self.loop.run_until_complete(asked)
        wanted = [row[0] for row in self.query(CARRIERS, history.id, prefix, prefix)]
        assert digests == wanted
        assert images == len(wanted)
        assert tags == self.query(COUNT_TAGS, history.id, prefix, prefix)[0][0]


@contextmanager
def opened(url: str) -> Iterator[World]:
    """Open a database on an event loop of its own."""

    async def on_loop() -> Database:
        return open_database(url)

    loop = asyncio.new_event_loop()
    database = loop.run_until_complete(on_loop())
    try:
        with querying(url) as query:
            yield World(loop, database, query)
    finally:
        loop.run_until_complete(database.close())
        loop.close()


class History:
    """What happens to one repository, by the services' rules."""

    def __init__(self, account: RegistryAccount, undelete_days: int) -> None:
        self.account = account
        self.id = uuid7()
        self.now = 10**15
        self.undelete_days = undelete_days

    def begin(self, tx: Connection) -> None:
        put_settings(tx, self.account.id, AccountSettings(self.undelete_days), self.now)
        find_or_add_repository(tx, self.id, self.account, f"app-{self.id}", self.now)

    def play(self, tx: Connection, kind: str, number: int, tag: str) -> None:
        """Do one thing, or not where the rules refuse it."""
        self.now += 1
        repository = lock_repository(tx, self.id)
        assert repository is not None
        change = Change("", self.now, HOST)
        body = f"image {number}".encode()
        digest = digest_of(body)
        found = find_manifest(tx, self.id, digest)
        try:
            if kind == "push":
                manifest = found or self._push(tx, repository, body)
                point_tag(tx, repository, tag, manifest, digest, None, change)
            elif kind == "drop":
                drop_tag(tx, repository, tag, None, change)
            elif kind == "delete" and found:
                drop_image(tx, repository, found, change)
            elif kind == "restore":
                restore_image(tx, repository, digest, change)
        except PlatformError:
            return
        if kind == "year":
            self.now += 366 * DAY
        if kind in ("forget", "year"):
            # On SQLite the numbers of forgotten events come again.
            forget_tag_events(tx, self.now - (365 * DAY if kind == "year" else 0), 1000)

    def _push(self, tx: Connection, repository: Repository, body: bytes) -> ManifestRow:
        new = NewManifest(
            id=uuid7(),
            repository_id=self.id,
            account_id=self.account.id,
            digest=digest_of(body),
            media_type=OCI_MANIFEST,
            artifact_type=None,
            config_digest=None,
            subject_digest=None,
            is_index=False,
            manifest_size_bytes=len(body),
            size_bytes=0,
            annotations="{}",
        )
        add_manifest(tx, new, body, self.now)
        regained = attach_deleted_tags(tx, repository.id, new.digest)
        add_to_counters(tx, repository.id, self.now, Counts(images=1, deleted_tags=regained))
        manifest = find_manifest(tx, self.id, new.digest)
        assert manifest is not None
        return manifest

    def ask(self, tx: Connection, prefix: str) -> tuple[list[str], int, int]:
        """Return the digests under a prefix, read in pages of two, and both totals."""
        digests: list[str] = []
        before = NEWEST
        while True:
            found = find_visible_repository(tx, self.id)
            assert found is not None
            images, total = list_images(tx, found, TagStatus.TAGGED, prefix, before, 2)
            digests += [image.digest for image in images]
            if len(images) < 2:
                return digests, total, list_tag_page(tx, found, prefix, "", 1)[1]
            before = images[-1].id


@pytest.mark.parametrize(("ids", "changes"), [(500_000, 500), (500_000, 3), (60, 500)])
def test_what_is_kept_is_what_a_recount_finds(
    database_url: str, monkeypatch: pytest.MonkeyPatch, ids: int, changes: int
) -> None:
    """With room for everything; few changes followed, and room for hardly anything."""
    monkeypatch.setattr(prefix_index, "MAX_IDS", ids)
    monkeypatch.setattr(prefix_index_rows, "MAX_CHANGES", changes)

    @settings(
        max_examples=times(20 if database_url.startswith("sqlite") else 4),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        steps=st.lists(STEP, min_size=5, max_size=40),
        undelete_days=st.sampled_from([0, 7]),
    )
    def holds(steps: list[Step], undelete_days: int) -> None:
        history = History(account, undelete_days)
        world.write(history.begin)
        for kind, number, tag, prefix in steps:
            if kind == "ask":
                world.compare(history, prefix)
            else:
                world.write(partial(history.play, kind=kind, number=number, tag=tag))
        for prefix in dict.fromkeys(PREFIXES):
            world.compare(history, prefix)

    with opened(database_url) as world:
        account_id = world.write(partial(add_account, handle="dev"))
        account = RegistryAccount(account_id, "dev", auto_create_repositories=True)
        holds()


def test_what_happens_is_followed_and_nothing_found_anew(database_url: str) -> None:
    """Whatever changes tags tells of both images, also of one that is gone."""
    statements: list[Statement] = []

    def asked(tx: Connection) -> object:
        return history.ask(CountingConnection(tx, statements), "v")

    with opened(database_url) as world:
        account = RegistryAccount(world.write(partial(add_account, handle="dev")), "dev", True)
        history = History(account, 7)
        world.write(history.begin)
        for kind, number, tag in (
            ("push", 0, "v1"),
            ("push", 1, "v1"),
            ("push", 0, "v2"),
            ("drop", 0, "v1"),
            ("push", 1, "v1"),
            ("delete", 0, ""),
            ("delete", 1, ""),
            ("restore", 0, ""),
        ):
            world.write(partial(history.play, kind=kind, number=number, tag=tag))
            statements.clear()
            world.loop.run_until_complete(world.database.read(asked))
            world.compare(history, "v")
            is_first = (kind, number, tag) == ("push", 0, "v1")
            assert (prefix_index_rows._ALL in statements) == is_first, (kind, number, tag)
