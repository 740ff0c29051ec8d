"""A registry over stores of one process's memory, its clients, its collector, and what must hold.

`Yard.play` lets some tasks run in an order chance draws, each a client or a part of the collector
with all delays at 0, and then checks what was promised: what was acknowledged and not deleted is
pulled whole, every count is right, and in the end nothing is left that nobody needs.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.jobs.runs import end_run
from cloudcore.quotas.limits import put_limit, remove_limit
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.gc.collection import phases_of
from registry.gc.fsck import check
from registry.gc.orphans import STAGED, set_orphans_aside
from registry.gc.purge import (
    discard_expired_uploads,
    purge_deleted_repositories,
    purge_deleted_tags,
    purge_tombstones,
)
from registry.metadata.repositories.repository import add_account, find_account
from registry.metadata.settings import AccountSettings, put_settings
from registry.quotas import BLOB_BYTES
from registry.services.changes import RegistryHost
from registry.services.collector_runs import start_collection
from registry.services.context import ServiceContext
from registry.services.images.pulls import PullLog
from registry.settings.groups import Delays, Limits
from tests.collecting import AT_ONCE, collect
from tests.inprocess import IN_FILES, Answer, Client, ManualClock
from tests.property.collector_keys import YardKeys
from tests.property.collector_ledger import Ledger
from tests.property.control_documents import BY_DIGEST, CONTENTS, DOCUMENTS, Document
from tests.property.interleaved_stores import InterleavedStore, OneConnection
from tests.property.interleaving import drive
from tests.property.locked_statements import StatementDatabase
from tests.recount import check_counters

ACCOUNT: Final = "dev"
REPOSITORIES: Final = ("a", "b")
IMAGES: Final = DOCUMENTS[:3]
DOCUMENTS_OF_ALL: Final = (*IMAGES, DOCUMENTS[5], DOCUMENTS[-1])
"""With an index of two of the images, and one of an image and of blobs."""
DAY: Final = 24 * 3600
SEALED: Final = 0.7
"""How often a run seals its blobs."""
LIMITED: Final = 0.5
"""How often the bytes of a run's account are limited from the beginning."""
PLENTY: Final = 1 << 40
BYTES: Final = (None, PLENTY, sum(map(len, CONTENTS.values())) // 2)
"""Limits of bytes: none, more than there can be, and fewer."""
TAIL: Final = 8
"""How many shards the ids of a run fall into."""


class HeldBytes:
    """The body of the next request, moved to its sink without a thread."""

    def __init__(self) -> None:
        self.data = b""

    async def receive_into(
        self, sink: Callable[[memoryview], None], finish: Callable[[bool], Any]
    ) -> Any:  # noqa: ANN401
        """Move it (`cloudcore.serving.asgi.HeldBody`)."""
        if self.data:
            sink(memoryview(self.data))
        return finish(True)


@dataclass
class Yard:
    """The registry; one for many runs, each from the same beginning."""

    database: OneConnection | StatementDatabase
    delays: Delays = AT_ONCE
    limits: Limits = IN_FILES
    rng: random.Random = field(default_factory=random.Random)
    tally: Counter[str] = field(default_factory=Counter)
    """What happened, in all runs."""

    def open(self, seed: object) -> None:
        """Begin a run."""
        self.rng.seed(seed)  # type: ignore[arg-type]
        self.database.begin()
        self.interleaving = self.database.interleave(self.rng)
        self.store = cast("Any", InterleavedStore(self.interleaving.step))
        self.clock = ManualClock()
        self.ledger = Ledger(lambda: self.interleaving.moment)
        self.ctx = ServiceContext(
            database=self.database,
            reader=self.store,
            writer=self.store,
            clock=self.clock,
            new_id=self._new_id,
            limits=self.limits,
            pulls=PullLog(self.database, self.clock),
            registry_host=RegistryHost("local", "registry.example"),
            delays=self.delays,
        )
        self.account_id = drive(self.database.write(_make_account, self.clock()))
        self.keys = YardKeys(self)
        self.keys.make()
        if self.rng.random() < SEALED:
            self.ctx = replace(self.ctx, data_keys=self.keys.data_keys(), seals=True)
        self.app = DataPlane(self.ctx, OpenAccess(ACCOUNT))
        self.repositories = self.rng.choice([REPOSITORIES, REPOSITORIES[:1]])
        self.documents = self.rng.choice([DOCUMENTS_OF_ALL, DOCUMENTS_OF_ALL[:1], IMAGES[:2]])
        self.blobs = sorted({blob for each in self.documents for blob in each.tree})
        if self.rng.random() < 0.5:
            self.allow_restoration(0)
        if self.rng.random() < LIMITED:
            self.limit_bytes(PLENTY)

    def close(self) -> None:
        """Take back what the run did."""
        self.database.interleaving = None
        self.database.undo()

    def allow_restoration(self, days: int) -> None:
        """Set for how long what is deleted can be restored."""
        settings = AccountSettings(undelete_days=days)
        drive(self.database.write(put_settings, self.account_id, settings, self.clock()))

    def limit_bytes(self, most: int | None) -> None:
        """Let the account store so many bytes of blobs, or any number."""
        if most is None:
            drive(self.database.write(remove_limit, self.account_id, BLOB_BYTES.name))
            return
        drive(self.database.write(put_limit, self.account_id, BLOB_BYTES.name, most, self.clock()))

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run SQL of a test's own."""
        return self.database.query(sql, *parameters)

    def ask(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/octet-stream"
    ) -> Answer:
        """Send one request to the data plane."""
        held = HeldBytes()
        held.data = body
        client = Client(self.app, {"entrepot.held_body": held})
        return drive(client.request(method, path, body, {"content-type": kind}))

    def pull(self, repository: str, document: Document) -> str:
        """Pull an image with all it needs; return what is missing, if anything."""
        path = f"/v2/{ACCOUNT}/{repository}"
        answer = self.ask("GET", f"{path}/manifests/{document.digest}")
        if answer.status != 200:
            return f"the manifest: {answer.status}"
        assert answer.body == document.body
        for digest in sorted(document.blobs):
            answer = self.ask("GET", f"{path}/blobs/{digest}")
            if answer.status != 200:
                return f"{digest}: {answer.status}"
            assert answer.body == CONTENTS[digest]
        for child in document.children:
            missing = self.pull(repository, BY_DIGEST[child])
            if missing:
                return missing
        return ""

    def collect(self, phases: Sequence[int] | None = None) -> None:
        """Run the collector, from the first phase to the last or only some of them."""
        if phases is None:
            drive(collect(self.ctx, self.store, self.account_id))
            return
        drive(self._collect(phases))

    async def _collect(self, phases: Sequence[int]) -> None:
        """Run some phases, as a worker does that dies between them and begins again."""
        write = self.database.write
        run = await write(
            start_collection, self.account_id, self.ctx.new_id(), self.ctx.change_by("")
        )
        for number in phases:
            while await phases_of(self.store)[number](self.ctx, run):
                pass
        await write(end_run, run.id, self.clock())

    def scan(self) -> None:
        """Look for orphans wherever there is anything."""
        for place in sorted({each[-2:] for each in self.store.bytes.files.objects}):
            self.tally["orphans"] += drive(set_orphans_aside(self.ctx, self.store, place))
        self.tally["orphans"] += drive(set_orphans_aside(self.ctx, self.store, STAGED))

    def purge(self) -> None:
        """Let go of what cannot be restored any more."""
        drive(purge_tombstones(self.ctx))
        drive(purge_deleted_tags(self.ctx))
        drive(purge_deleted_repositories(self.ctx))
        drive(discard_expired_uploads(self.ctx))

    def play(self, tasks: Sequence[tuple[str, Callable[[], None], int | None]]) -> None:
        """Run tasks, and check what must hold after them."""
        self.interleaving.run(tasks)
        swept = sum(json.loads(row[0])["swept"] for row in self.query("SELECT counts FROM runs"))
        self.tally["swept"] += swept
        switched = "SELECT count(*) FROM blob_objects WHERE stored_id <> id"
        self.tally["switched"] += self.query(switched)[0][0]
        self.tally["counted"] += self.query("SELECT count(*) FROM stored_bytes")[0][0]
        self.collect((0,))  # else who took bytes in use would not be found out in time
        self.check()
        self.settle()

    def check(self) -> None:
        """Check that nothing is lost, and nothing miscounted."""
        present = set(
            self.query(
                "SELECT r.name, m.digest FROM manifests m JOIN repositories r"
                " ON r.id = m.repository_id WHERE r.deleted_at IS NULL"
            )
        )
        for each in self.ledger.acknowledged:
            assert each in present or not self.ledger.must_have(*each), f"{each} is lost"
        linked: dict[tuple[str, str], str] = {
            (repository, digest): state or "enabled"
            for repository, digest, state in self.query(
                "SELECT r.name, l.digest, k.state FROM repository_blobs l JOIN repositories r"
                " ON r.id = l.repository_id LEFT JOIN kms_keys k ON k.id = l.kms_key_id"
                " WHERE r.deleted_at IS NULL"
            )
        }
        for repository, digest in present:
            document = BY_DIGEST[digest]
            assert all((repository, child) in present for child in document.children)
            for blob in document.blobs:
                self._check_blob(repository, blob, linked.get((repository, blob)))
        checking = check(
            self.database,
            self.store,
            lambda _: None,
            clock=self.ctx.clock,
            readers=1,
            data_keys=self.ctx.data_keys,
        )
        report = drive(checking)
        assert report.violations == [], report.violations
        check_counters(self.query, ACCOUNT)

    def _check_blob(self, repository: str, blob: str, key_state: str | None) -> None:
        """Check that a blob that a manifest needs is read through its key, and only through it."""
        answer = self.ask("GET", f"/v2/{ACCOUNT}/{repository}/blobs/{blob}")
        if key_state is None or key_state == "enabled":
            assert answer.status == 200, f"{repository} lacks {blob}: {answer.body!r}"
            assert answer.body == CONTENTS[blob]
            return
        self.tally[f"key {key_state}"] += 1
        assert answer.status == (404 if key_state == "deleted" else 403), answer.body

    def bodies(self) -> dict[str, bytes]:
        """Return the bytes of inline objects by stored id."""
        return dict(self.query("SELECT stored_id, body FROM inline_bytes"))

    def settle(self) -> None:
        """Let every time run out and collect twice; then nothing is left that nobody needs."""
        self.clock.advance(40 * DAY)
        self.keys.shred()
        self.purge()
        self.scan()
        self.collect()
        self.collect()
        self.check()
        held = "SELECT stored_id FROM blob_objects WHERE state <> 'shredded'"
        objects = {row[0] for row in self.query(held)}
        files, bodies = set(self.store.bytes.files.objects), set(self.bodies())
        assert files | bodies == objects, "bytes leak"
        assert not files & bodies
        self.tally["inline"] += len(bodies)
        assert not self.store.bytes.files.staged, "staged bytes leak"
        assert not self.store.bytes.files.held, "bytes are held for ever"
        assert not self.query("SELECT id FROM quarantined_objects")
        assert not self.query(
            "SELECT id FROM blob_objects WHERE state = 'condemned' OR id NOT IN"
            " (SELECT object_id FROM repository_blobs WHERE manifest_refs > 0)"
        ), "an object leaks"

    def _new_id(self) -> str:
        """Return an id that is the seed's."""
        value = uuid.UUID(uuid7(self.clock())).int >> 72 << 72
        value |= self.rng.getrandbits(55) << 8 | self.rng.randrange(TAIL)
        return str(uuid.UUID(int=value))


def _make_account(tx: Connection, now: int) -> str:
    add_account(tx, str(uuid.UUID(int=1)), ACCOUNT, now)
    account = find_account(tx, ACCOUNT)
    assert account is not None
    return account.id
