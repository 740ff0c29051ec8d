"""Workers of one server, in this process, with a rule of the pull-through cache."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Concatenate, Final, NamedTuple

from sqlalchemy import bindparam, func, select, text

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database, P, T
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from registry.blobstore.disk.store import FilesystemStore
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.pull_through.tables import blob_fills, pull_through_cache_rules
from registry.metadata.repositories.repository import find_account, find_or_add_repository
from registry.metadata.tables import repository_blobs, uploads
from registry.services.blobs.upload_leases import Leases
from registry.services.context import ServiceContext
from registry.settings.groups import Limits
from registry.upstream.base import Upstream
from tests.dying import PassingDatabase
from tests.inprocess import Client, ManualClock, open_registry

HANDLE: Final = "dev"
PREFIX: Final = "hub"
REPOSITORY: Final = "hub/team/app"
OTHER: Final = "hub/team/other"
ELSEWHERE: Final = "quay/team/app"
"""A cached repository of another rule, `QUAY`."""
QUAY: Final = "quay"

_ADD_RULE: Final = Statement(
    pull_through_cache_rules.insert().values(
        id=bindparam("id"),
        account_id=bindparam("account_id"),
        prefix=bindparam("prefix"),
        upstream_url=bindparam("url"),
        upstream_prefix=text("''"),
        tag_ttl_seconds=text("3600"),
        negative_ttl_seconds=text("60"),
        enabled=text("true"),
        created_at=text("0"),
        updated_at=text("0"),
    )
)
_COUNTS: Final = [
    Statement(select(func.count()).select_from(table))
    for table in (blob_fills, uploads, repository_blobs)
]


class MortalDatabase(PassingDatabase):
    """A database that a process can no longer reach once it is dead."""

    is_dead = False

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._check()
        return await super().read(query, *args, **kwargs)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._check()
        return await super().write(change, *args, **kwargs)

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._check()
        return await super().write_relaxed(change, *args, **kwargs)

    def _check(self) -> None:
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


def path_of(digest: str, name: str = REPOSITORY) -> str:
    """Return the path of a blob."""
    return f"/v2/{HANDLE}/{name}/blobs/{digest}"


@asynccontextmanager
async def fills_world(
    url: str,
    folder: Path,
    upstream: Upstream,
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
            tx.execute(_ADD_RULE, id=uuid7(), account_id=account.id, prefix=prefix, url=url)
    for name in (REPOSITORY, OTHER, ELSEWHERE):
        find_or_add_repository(tx, uuid7(), account, name, 1, source="pull_through_cache")
