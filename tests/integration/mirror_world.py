"""Workers with a rule of the pull-through cache, over an upstream in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import bindparam

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.blobstore.inline import store_inline
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.gc import fsck
from registry.metadata.pull_through.tables import CACHE_RULES, pull_through_cache_rules
from registry.metadata.repositories.repository import find_account
from registry.oci.digest import digest_of
from registry.oci.reference import Name
from registry.services.blobs.recording import NewBytes, record_blob
from registry.services.context import ServiceContext
from registry.services.pull_through.fetched_manifests import cached_repository
from tests.collecting import at_once, collect
from tests.inprocess import Answer, Client, ManualClock, open_registry
from tests.manifest_upstream import ManifestUpstream
from tests.memory_store import MemoryStore
from tests.recount import check_counters, querying
from tests.upstream_world import rule_of

HANDLE: Final = "dev"
APP: Final = "team/app"
"""A repository of the upstream."""
NAME: Final = Name(HANDLE, f"hub/{APP}")
TTL: Final = 600
NEGATIVE_TTL: Final = 60

_SWITCH: Final = Statement(pull_through_cache_rules.update().values(enabled=bindparam("to")))


@dataclass
class CachedWorld:
    """Workers over one database, one store, one clock and one upstream."""

    url: str
    upstream: ManifestUpstream
    store: MemoryStore
    clock: ManualClock
    contexts: list[ServiceContext]
    clients: list[Client]

    @property
    def ctx(self) -> ServiceContext:
        """Return what the first worker has."""
        return self.contexts[0]

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        worker: int = 0,
        name: Name = NAME,
    ) -> Answer:
        """Send a request below a repository."""
        return await self.clients[worker].request(method, f"/v2/{name}/{path}", body, headers)

    async def pull(self, reference: str, worker: int = 0, name: Name = NAME) -> Answer:
        """Ask for a manifest."""
        return await self.ask("GET", f"manifests/{reference}", worker=worker, name=name)

    async def pulled(self, tag: str = "v1") -> str:
        """Let the upstream have an image under a tag, and pull it; return its digest."""
        digest = self.upstream.add_image(APP, tag)
        assert (await self.pull(tag)).status == 200
        return digest

    async def referrers(self, subject: str) -> list[dict[str, Any]]:
        """Return the referrers that are listed of a digest."""
        answer = await self.ask("GET", f"referrers/{subject}")
        assert answer.status == 200, answer
        listed: list[dict[str, Any]] = answer.json()["manifests"]
        return listed

    async def fill(self, *blobs: bytes, name: Name = NAME) -> None:
        """Link blobs in a cached repository, as one that was fetched is."""
        repository = await cached_repository(self.ctx, name)
        for data in blobs:
            stored = store_inline(data, digest_of(data), uuid7(self.clock()))
            new = NewBytes(repository.id, repository.account_id, stored, None, is_cached=True)
            await record_blob(self.ctx, new)

    async def switch(self, *, on: bool) -> None:
        """Enable or disable the rule."""
        await self.ctx.database.write(lambda tx: tx.execute(_SWITCH, to=on))

    async def collect(self) -> None:
        """Run the collector, without any grace."""
        account = await self.ctx.database.read(find_account, HANDLE)
        assert account is not None
        await collect(at_once(self.ctx), self.store, account.id)

    async def check(self) -> None:
        """Check that every counter is what a recount finds, and that fsck finds nothing wrong."""
        with querying(self.url) as query:
            check_counters(query, HANDLE)
        report = await fsck.check(self.ctx.database, self.store, lambda _: None, clock=self.clock)
        assert report.violations == []

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return rows, by SQL of the test."""
        with querying(self.url) as query:
            return [tuple(row) for row in query(sql, *parameters)]


@asynccontextmanager
async def open_cached(
    url: str, *, workers: int = 1, upstream_url: str = "https://upstream.example"
) -> AsyncIterator[CachedWorld]:
    """Open workers of an account whose names under ``hub/`` are those of an upstream."""
    upstream, store, clock = ManifestUpstream(), MemoryStore(), ManualClock()
    contexts = []
    async with AsyncExitStack() as resources:
        for _ in range(workers):
            registry = await resources.enter_async_context(
                open_registry(url, store, HANDLE, clock=clock)
            )
            ctx = replace(registry.ctx, upstream=upstream)
            resources.push_async_callback(ctx.manifest_fetches.aclose)
            contexts.append(ctx)
        await contexts[0].database.write(add_rule, HANDLE, upstream_url)
        clients = [Client(DataPlane(ctx, OpenAccess(HANDLE))) for ctx in contexts]
        yield CachedWorld(url, upstream, store, clock, contexts, clients)


def add_rule(tx: Connection, handle: str, upstream_url: str = "https://upstream.example") -> None:
    """Add a rule of an account for the names under ``hub/``."""
    account = find_account(tx, handle)
    assert account is not None
    CACHE_RULES.add(
        tx,
        rule_of(
            account.id,
            upstream_url=upstream_url,
            tag_ttl_seconds=TTL,
            negative_ttl_seconds=NEGATIVE_TTL,
        ),
    )
