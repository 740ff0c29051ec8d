"""Workers of one server, in this process, with a rule of the pull-through cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from sqlalchemy import func, select

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from registry.blobstore.disk.store import FilesystemStore
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.errors import BlobUnknown
from registry.metadata.blobs.objects import Link
from registry.metadata.blobs.uploads import Upload
from registry.metadata.pull_through import fills
from registry.metadata.pull_through.fills import Fill
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.pull_through.tables import CACHE_RULES, blob_fills
from registry.metadata.repositories.repository import find_account, find_or_add_repository
from registry.metadata.tables import repository_blobs, uploads
from registry.oci.digest import Digest
from registry.oci.reference import Name
from registry.services.blobs.upload_leases import Leases
from registry.services.context import ServiceContext
from registry.services.pull_through.fills import FillSource
from registry.services.pull_through.missing_blobs import FedBlob, get_missing_blob
from registry.services.pull_through.remote import no_credential, remote_of
from registry.settings.groups import Limits
from registry.upstream.client import RegistryClient
from tests.dying import Kind, PassingDatabase
from tests.inprocess import Client, ManualClock, open_registry
from tests.upstream_world import rule_of

HANDLE: Final = "dev"
PREFIX: Final = "hub"
REPOSITORY: Final = "hub/team/app"
OTHER: Final = "hub/team/other"
ELSEWHERE: Final = "quay/team/app"
"""A cached repository of another rule, `QUAY`."""
QUAY: Final = "quay"

_FILL: Final = Statement(select(blob_fills.c.account_id, blob_fills.c.digest))
_COUNTS: Final = [
    Statement(select(func.count()).select_from(table))
    for table in (blob_fills, uploads, repository_blobs)
]


class MortalDatabase(PassingDatabase):
    """A database that a process can no longer reach once it is dead."""

    is_dead = False

    async def before(self, kind: Kind, call: Callable[..., object]) -> None:
        if self.is_dead:
            raise Unavailable("the process is dead")


@dataclass
class Worker:
    """One worker process, as far as the data plane sees it."""

    ctx: ServiceContext
    client: Client
    store: FilesystemStore

    async def pull(self, digest: str, name: str = REPOSITORY, **headers: str) -> bytes:
        """Return the body of a successful pull."""
        answer = await self.client.request("GET", path_of(digest, name), headers=headers)
        assert answer.status in (200, 206), answer
        assert answer.headers["docker-content-digest"] == digest
        return answer.body

    async def fed(self, digest: Digest, repository: str = REPOSITORY) -> FedBlob:
        """Return a blob that is being fetched."""
        missing = BlobUnknown("it is not here")
        found = await get_missing_blob(self.ctx, Name(HANDLE, repository), digest, missing)
        assert isinstance(found, FedBlob)
        return found

    async def source(self, of: Upload | Link, digest: Digest) -> FillSource:
        """Return where the blob of a fill or a link in `REPOSITORY` comes from."""
        rule = await self.ctx.database.read(find_rule_for, HANDLE, REPOSITORY)
        assert rule is not None
        name = Name(HANDLE, REPOSITORY)
        remote = remote_of(rule, name, no_credential)
        return FillSource(name, of.repository_id, of.account_id, digest, remote)


class Left(NamedTuple):
    """How many rows there are."""

    fills: int
    uploads: int
    links: int


@dataclass
class World:
    """Workers over one database and one store."""

    workers: list[Worker]
    folder: Path
    dead: set[str]
    """The workers whose processes are taken for dead."""

    @property
    def database(self) -> Database:
        """Return the database."""
        return self.workers[-1].ctx.database

    async def kill(self, worker: Worker) -> None:
        """Let a worker do nothing more, not even end what it has begun; others take it for dead."""
        assert isinstance(worker.ctx.database, MortalDatabase)
        worker.ctx.database.is_dead = True
        await worker.ctx.fills.aclose()
        self.dead.add(worker.ctx.leases.holder)

    async def settled(self) -> None:
        """Wait until no worker fetches anything."""
        async with asyncio.timeout(60):
            for worker in self.workers:
                await worker.ctx.fills.settled()

    async def broken(self, digest: str, words: str) -> None:
        """Pull a blob in vain, and wait until no worker fetches it."""
        with pytest.raises(Exception, match=words):
            await self.workers[0].pull(digest)
        await self.settled()

    async def fill(self) -> Fill:
        """Return the only fill."""
        account, key = await self.database.read(lambda tx: tx.rows(_FILL)[0])
        found = await self.database.read(fills.find_fill, account, key)
        assert found is not None
        return found

    async def left(self) -> Left:
        """Return what rows there are."""

        def look(tx: Connection) -> list[int]:
            return [row[0] for count in _COUNTS for row in tx.rows(count)]

        return Left(*await self.database.read(look))

    def files(self) -> tuple[int, int]:
        """Return how many staged files and objects there are."""
        objects = self.folder / "objects"
        found = [path for path in objects.rglob("*") if path.is_file()]
        return len(list((self.folder / "uploads").iterdir())), len(found)


async def joined(parts: AsyncIterator[bytes]) -> bytes:
    """Return all bytes of a stream."""
    return b"".join([part async for part in parts])


def path_of(digest: str, name: str = REPOSITORY) -> str:
    """Return the path of a blob."""
    return f"/v2/{HANDLE}/{name}/blobs/{digest}"


OpenFills = Callable[..., AbstractAsyncContextManager[World]]
"""`fills_world`, for a database and in a folder."""


@asynccontextmanager
async def fills_world(
    url: str,
    folder: Path,
    upstream: RegistryClient,
    *,
    count: int = 1,
    seals: bool = False,
    limits: Limits | None = None,
    around: Callable[[Database], Database] = MortalDatabase,
    dead: Container[str] = (),
    holder: str | None = None,
) -> AsyncIterator[World]:
    """Open workers with the cached repositories `REPOSITORY`, `OTHER` and `ELSEWHERE`.

    They take the workers of the ids `dead` for dead. `holder` is the id of the only one.
    """
    killed: set[str] = set()
    workers = []
    async with AsyncExitStack() as resources:
        for _ in range(count):
            store = resources.enter_context(closing(FilesystemStore(folder)))
            registry = await resources.enter_async_context(
                open_registry(
                    url,
                    store,
                    HANDLE,
                    clock=ManualClock(),
                    limits=limits,
                    leases=Leases(holder or uuid7(), lambda each: each in dead or each in killed),
                    seals=seals,
                    around=around,
                )
            )
            ctx = replace(registry.ctx, upstream=upstream)
            resources.push_async_callback(ctx.fills.aclose)
            client = Client(DataPlane(ctx, OpenAccess(HANDLE)))
            workers.append(Worker(ctx, client, store))
        await workers[0].ctx.database.write(_prepare)
        yield World(workers, folder, killed)


def _prepare(tx: Connection) -> None:
    account = find_account(tx, HANDLE)
    assert account is not None
    if find_rule_for(tx, HANDLE, REPOSITORY) is None:
        for prefix, url in ((PREFIX, "https://upstream.example"), (QUAY, "https://quay.example")):
            CACHE_RULES.add(tx, rule_of(account.id, prefix=prefix, upstream_url=url))
    for name in (REPOSITORY, OTHER, ELSEWHERE):
        find_or_add_repository(tx, uuid7(), account, name, 1, source="pull_through_cache")
