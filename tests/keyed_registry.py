"""A registry in this process whose account has keys: one plane stores plain, another one seals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import bindparam, select

from cloudcore.clock import uuid7
from cloudcore.db.base import CommitMark, Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.jobs.background import running
from cloudcore.jobs.runs import Run, find_run
from cloudcore.jobs.worker import JobPace, JobWorker
from cloudcore.kms.key import Key
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.rows import find_platform_key
from cloudcore.objects.damage import DIGEST
from registry.blobstore.store import BlobStore
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.gc.object_check import Pace
from registry.gc.object_sealing import Sealer
from registry.gc.seal_run import SealReport, plain_rows, seal_objects
from registry.metadata.blobs.objects import BLOB_ROWS, find_object
from registry.metadata.collector.plain_objects import FIRST
from registry.metadata.control_tables import deleted_manifest_blobs
from registry.metadata.encryption_bindings import add_binding, end_binding
from registry.metadata.repositories.repository import (
    RegistryAccount,
    find_account,
    find_or_add_repository,
    find_repository,
)
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    inline_bytes,
    repository_blobs,
)
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.blobs.rewrapping import KIND, rewrap_kind, start_rewrap
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys
from registry.settings.groups import Limits
from tests.inprocess import Client, Registry, open_registry
from tests.jobs import until
from tests.kms_world import KEYRING, KmsWorld

_o, _l, _w = blob_objects.c, repository_blobs.c, blob_object_keys.c
_LINKS: Final = Statement(
    select(_l.digest, _l.kms_key_id)
    .where(_l.repository_id == bindparam("repository_id"))
    .order_by(_l.digest)
)
_BODIES: Final = Statement(select(inline_bytes.c.body))
_SET_BODY: Final = Statement(
    inline_bytes.update()
    .where(inline_bytes.c.stored_id == bindparam("of_id"))
    .values(body=bindparam("content"))
)
_TOMBSTONES: Final = Statement(select(deleted_manifest_blobs.c.kms_key_id))
_WRAPS: Final = Statement(
    select(_w.kms_key_id)
    .join(blob_objects, _o.id == _w.object_id)
    .where(_o.digest == bindparam("digest"))
    .order_by(_w.kms_key_id)
)


@dataclass(frozen=True)
class KeyedRegistry:
    """An account with keys, and two planes over its registry."""

    registry: Registry
    """Stores plain what is pushed to it."""
    ctx: ServiceContext
    """Seals."""
    client: Client
    """Of the plane that seals."""
    store: BlobStore
    kms: KmsWorld
    account_id: str
    bound: dict[str | None, Key] = field(default_factory=dict)
    """The keys that were bound last, by repository; None: the account's default."""

    @property
    def database(self) -> Database:
        """Return the metadata database."""
        return self.ctx.database

    async def platform_key(self) -> Key:
        """Return the account's platform key."""
        found = await self.database.read(find_platform_key, self.account_id)
        assert found is not None
        return found

    async def make_key(self, name: str) -> Key:
        """Create a key."""
        return await self.kms.make(name, self.account_id)

    async def repository_id(self, name: str = "app") -> str:
        """Return the id of a repository."""
        found = await self.database.read(find_repository, "dev", name)
        assert found is not None
        return found.id

    async def bind(self, key: Key, repository: str | None = "app") -> None:
        """Bind a repository, or without one the account, to a key."""
        scope = None if repository is None else await self.repository_id(repository)

        def change(tx: Connection) -> None:
            end_binding(tx, self.account_id, scope, self.ctx.clock())
            add_binding(tx, uuid7(), self.account_id, scope, key.id, self.ctx.clock())

        await self.database.write(change)
        self.bound[repository] = key

    async def seal(self, *, workers: int = 1) -> SealReport:
        """Seal all that is plain, and return what became of it."""
        report = SealReport()
        sealer = self.sealer(report)
        rows = plain_rows(self.database, FIRST)
        await seal_objects(sealer, rows, report, lambda: None, workers)
        return report

    def sealer(self, report: SealReport | None = None, store: BlobStore | None = None) -> Sealer:
        """Return what seals single objects, perhaps through another store."""
        found = (report or SealReport()).damaged.append
        assert self.ctx.data_keys is not None
        return Sealer(self.ctx, self.ctx.data_keys, store or self.store, Pace(), found)

    async def start_rewrap(self, repository: str = "app") -> Run:
        """Start a run that rewraps a repository."""
        scope = await self.repository_id(repository)
        change = self.ctx.change_by("someone")
        return await self.database.write(start_rewrap, scope, uuid7(), change, has_keys=True)

    async def rewrap(self, repository: str = "app") -> Run:
        """Rewrap a repository, and return the run when it has ended."""
        return await self.finish(await self.start_rewrap(repository))

    async def finish(self, run: Run) -> Run:
        """Let a worker carry out a run, and return it when it has ended."""
        worker = JobWorker(
            self.database,
            [rewrap_kind(self.ctx)],
            clock=self.ctx.clock,
            pace=JobPace(poll_seconds=0.01),
        )

        async def has_ended() -> bool:
            self.registry.clock.advance(1)  # so that retries are due
            return (await self.run(run)).state != "running"

        async with running(worker):
            await until(has_ended)
        return await self.run(run)

    async def run(self, run: Run) -> Run:
        """Return a run as it is now."""
        found = await self.database.read(find_run, KIND, run.scope_id, run.id)
        assert found is not None
        return found

    async def link_keys(self, repository: str = "app") -> dict[str, str | None]:
        """Return the keys of a repository's links, by digest."""
        scope = await self.repository_id(repository)
        rows = await self.database.read(lambda tx: tx.rows(_LINKS, repository_id=scope))
        return {row[0]: row[1] for row in rows}

    async def wraps_of(self, digest: str) -> list[str]:
        """Return the keys under which the data keys of a blob's objects are wrapped."""
        rows = await self.database.read(lambda tx: tx.rows(_WRAPS, digest=digest))
        return [row[0] for row in rows]

    async def tombstone_keys(self) -> set[str | None]:
        """Return the keys through which blobs of deleted images are read."""
        return {row[0] for row in await self.database.read(lambda tx: tx.rows(_TOMBSTONES))}

    async def stored_id(self, digest: str) -> str:
        """Return which bytes the account's object with a digest has."""
        found = await self.database.read(find_object, self.account_id, digest)
        assert found is not None
        return found.stored_id

    async def bodies(self) -> list[bytes]:
        """Return the stored bytes of all inline objects, also in quarantine."""
        rows = await self.database.read(lambda tx: tx.rows(_BODIES))
        return [bytes(row[0]) for row in rows]

    async def set_body(self, digest: str, body: bytes) -> None:
        """Damage an inline object."""
        stored_id = await self.stored_id(digest)

        def change(tx: Connection) -> None:
            assert tx.execute(_SET_BODY, of_id=stored_id, content=body) == 1

        await self.database.write(change)

    async def object_id(self, digest: str) -> str:
        """Return the id of the account's object with a digest."""
        found = await self.database.read(find_object, self.account_id, digest)
        assert found is not None
        return found.id

    async def mark_damaged(self, digest: str) -> None:
        """Mark an object as damaged, so that the next push replaces its bytes."""
        found = await self.database.read(find_object, self.account_id, digest)
        assert found is not None
        at = (self.account_id, found.stored_id, found.verified_at)
        assert await self.database.write(BLOB_ROWS.mark, *at, DIGEST, self.ctx.clock())

    async def push_image(self, layer: bytes, repository: str = "app") -> tuple[str, str]:
        """Push an image of one layer, sealed; return its digest and the layer's."""
        digest = digest_of(layer)
        base = f"/v2/dev/{repository}"
        sent = await self.client.request("POST", f"{base}/blobs/uploads/?digest={digest}", layer)
        assert sent.status == 201
        blob = {"mediaType": "application/x", "digest": digest, "size": len(layer)}
        document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blob, "layers": []}
        body = json.dumps(document).encode()
        image = digest_of(body)
        kind = {"content-type": OCI_MANIFEST}
        put = await self.client.request("PUT", f"{base}/manifests/{image}", body, kind)
        assert put.status == 201
        return str(image), str(digest)

    async def make_repository(self, name: str) -> None:
        """Make a repository."""
        now = self.ctx.clock()
        await self.database.write(
            find_or_add_repository, uuid7(now), await self._account(), name, now
        )

    async def _account(self) -> RegistryAccount:
        account = await self.database.read(find_account, "dev")
        assert account is not None
        return account

    async def pull(self, digest: str, repository: str = "app") -> tuple[int, bytes]:
        """Pull a blob."""
        answer = await self.client.request("GET", f"/v2/dev/{repository}/blobs/{digest}")
        return answer.status, answer.body


@asynccontextmanager
async def open_keyed_registry(
    url: str, store: BlobStore, limits: Limits | None = None, mark: CommitMark | None = None
) -> AsyncIterator[KeyedRegistry]:
    """Open a registry whose account ``dev`` has a platform key (see `open_registry`).

    Without `limits`, small blobs are in the store too.
    """
    async with open_registry(url, store, limits=limits, mark=mark) as registry:
        ctx = registry.ctx
        account = await ctx.database.read(find_account, "dev")
        assert account is not None
        kms = KmsWorld(ctx.database, Providers(EmbeddedProvider(KEYRING)), registry.clock)
        await kms.maker.add_missing_platform_keys(ctx.database, registry.clock())
        sealing = replace(ctx, data_keys=DataKeys(kms.vault), seals=True)
        app = DataPlane(sealing, OpenAccess("dev"))
        client = Client(app)
        yield KeyedRegistry(registry, sealing, client, store, kms, account.id)
