"""The collector, with no delay, beside clients that push, mount and restore the same bytes.

Each client has a repository of its own, so it knows what must be there; objects are shared by all.
Two collectors run over and over, after some requests of the clients each, until those are done.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Concatenate, Final

import pytest

from cloudcore.db.base import Connection, ConstraintViolated, Database, P, T
from cloudcore.errors import NotFound
from cloudcore.quotas.limits import put_limit
from registry.blobstore.disk.store import FilesystemStore
from registry.gc.fsck import check
from registry.gc.purge import discard_expired_uploads, purge_tombstones
from registry.metadata.repositories.repository import find_account, find_repository, lock_repository
from registry.quotas import BLOB_BYTES
from registry.services.changes import Change
from registry.services.images.restoration import restore_image
from tests.collecting import at_once, collect
from tests.dying import PassingDatabase
from tests.inprocess import Answer, Registry, open_registry
from tests.property.control_documents import CONTENTS, DOCUMENTS, Document
from tests.recount import check_counters, object_ids, querying
from tests.soak import time_limit, times

CLIENTS: Final = 4
ROUNDS: Final = times(12)
TRIES: Final = 500
PAUSE: Final = 20
DAY: Final = 24 * 3600
IMAGES: Final = DOCUMENTS[:3]

_log = logging.getLogger(__name__)


class CountingDatabase(PassingDatabase):
    """Counts the changes that a foreign key refused."""

    def __init__(self, database: Database, refused: Counter[str]) -> None:
        super().__init__(database)
        self._refused = refused

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await super().write(change, *args, **kwargs)
        except ConstraintViolated:
            self._refused[change.__name__] += 1
            raise


class Linker:
    """A client with a repository of its own."""

    def __init__(self, registry: Registry, number: int, requests: asyncio.Semaphore) -> None:
        self.registry = registry
        self.requests = requests
        self.name = f"r{number}"
        self.others = [f"r{other}" for other in range(CLIENTS) if other != number]
        self.rng = random.Random(number)
        self.told: Counter[str] = Counter()

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request below the repository, and tell the collectors of it."""
        target = path if path.startswith("/") else f"/v2/dev/{self.name}/{path}"
        answer = await self.registry.client.request(method, target, body, headers)
        self.requests.release()
        return answer

    async def work(self) -> None:
        """Push, delete and restore images."""
        for _ in range(ROUNDS):
            document = self.rng.choice(IMAGES)
            await self.push(document)
            await self.check(document)
            path = f"manifests/{document.digest}"
            assert (await self.ask("DELETE", path)).status == 202
            if self.rng.random() < 0.5 and await self.restore(document):
                await self.check(document)
                assert (await self.ask("DELETE", path)).status == 202
            await self.detach(self.rng.choice(sorted(document.blobs)))

    async def restore(self, document: Document) -> bool:
        """Restore an image, unless its time was over."""
        ctx = self.registry.ctx
        try:
            await ctx.database.write(_restore, self.name, document.digest, ctx.change_by(""))
        except NotFound:
            return False
        self.told["restored"] += 1
        return True

    async def push(self, document: Document) -> None:
        """Push an image, anew as long as the collector takes its blobs before the manifest."""
        for _ in range(TRIES):
            for digest in sorted(document.blobs):
                await self.push_blob(digest)
            kind = {"content-type": document.media_type}
            answer = await self.ask("PUT", "manifests/v1", document.body, kind)
            self.told[f"manifest {answer.status}"] += 1
            if answer.status == 201:
                return
            assert answer.codes[0] == "MANIFEST_BLOB_UNKNOWN"
        pytest.fail("the collector took a blob every time")

    async def push_blob(self, digest: str) -> None:
        """Ask for a blob, mount it, or send it."""
        if self.rng.random() < 0.3:
            answer = await self.ask("HEAD", f"blobs/{digest}")
            assert answer.status in (200, 404)
            if answer.status == 200:
                return
        if self.rng.random() < 0.5:
            source = self.rng.choice(["", f"&from=dev/{self.rng.choice(self.others)}"])
            answer = await self.ask("POST", f"blobs/uploads/?mount={digest}{source}")
            self.told[f"mount {answer.status}"] += 1
            if answer.status == 201:
                return
            assert answer.status == 202
            gone = await self.ask("DELETE", answer.headers["location"])
            assert gone.status in (204, 404)
        answer = await self.ask("POST", f"blobs/uploads/?digest={digest}", CONTENTS[digest])
        assert answer.status == 201

    async def check(self, document: Document) -> None:
        """Pull an image whole."""
        for path, body in (
            (f"manifests/{document.digest}", document.body),
            *((f"blobs/{digest}", CONTENTS[digest]) for digest in sorted(document.blobs)),
        ):
            answer = await self.ask("GET", path)
            assert (answer.status, answer.body) == (200, body), path
        self.told["pulled"] += 1

    async def detach(self, digest: str) -> None:
        """Delete a blob, which may be gone by now."""
        assert (await self.ask("DELETE", f"blobs/{digest}")).status in (202, 404, 405)


def _restore(tx: Connection, name: str, digest: str, change: Change) -> None:
    repository = find_repository(tx, "dev", name)
    assert repository is not None
    assert lock_repository(tx, repository.id) is not None
    restore_image(tx, repository, digest, change)


@time_limit(120)
async def test_nothing_in_use_is_collected(database_url: str, tmp_path: Path) -> None:
    refused: Counter[str] = Counter()
    told: Counter[str] = Counter()

    with closing(FilesystemStore(tmp_path / "blobs")) as store:
        async with open_registry(
            database_url, store, around=lambda database: CountingDatabase(database, refused)
        ) as registry:
            account = await registry.ctx.database.read(find_account, "dev")
            assert account is not None
            account_id, ctx = account.id, at_once(registry.ctx)
            # Counted, and never full.
            await ctx.database.write(put_limit, account_id, BLOB_BYTES.name, 1 << 40, 1)
            requests = asyncio.Semaphore(0)
            done = asyncio.Event()

            async def collector(rng: random.Random) -> None:
                while not done.is_set():
                    for _ in range(rng.randint(1, PAUSE)):
                        await requests.acquire()
                    registry.clock.advance(rng.choice([0, 8 * DAY]))
                    await purge_tombstones(ctx)
                    run = await collect(ctx, store, account_id)
                    told["swept"] += run.counts["swept"]
                    told["runs"] += 1

            linkers = [Linker(registry, number, requests) for number in range(CLIENTS)]
            collectors = [asyncio.create_task(collector(random.Random(n))) for n in range(2)]
            try:
                await asyncio.gather(*(linker.work() for linker in linkers))
            finally:
                done.set()
                for _ in range(2 * PAUSE):
                    requests.release()
                await asyncio.gather(*collectors)
            for linker in linkers:
                told.update(linker.told)
            registry.clock.advance(8 * DAY)
            await purge_tombstones(ctx)
            await discard_expired_uploads(ctx)
            for _ in range(2):
                await collect(ctx, store, account_id)
            report = await check(registry.ctx.database, store, lambda _: None, clock=registry.clock)
            assert report.violations == []
            assert report.orphans == []
        with querying(database_url) as query:
            check_counters(query, "dev")
            assert {one.object_id for one in store.files.list_objects()} == object_ids(query)
            if database_url.startswith("postgresql"):
                ((deadlocks,),) = query(
                    "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
                )
                told["deadlocks"] = int(deadlocks)
            told["counted"] = len(query("SELECT bytes FROM stored_bytes"))
    assert told["counted"] == 1
    assert told["swept"] > 0
    assert told["pulled"] >= CLIENTS * ROUNDS
    _log.info("%s; refused by a key: %s", dict(told), dict(refused))
