"""Two workers with both planes over one database, and what its rows say of one account."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

from cloudcore.identity.rows.accounts import Account
from cloudcore.serving.dispatch import Application
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.services.lifecycle.runs import lifecycle_kind
from tests.inprocess import Client, ManualClock
from tests.jobs import run_due
from tests.memory_store import MemoryStore
from tests.property.control_model import Repository, TagEvent
from tests.recount import Query, querying
from tests.tenants import ALLOW_ALL, Install, open_install

T = TypeVar("T")

_OF_ACCOUNT: Final = "JOIN accounts a ON a.id = r.account_id WHERE a.handle = ?"
_REPOSITORIES: Final = f"SELECT r.id FROM repositories r {_OF_ACCOUNT}"
_LINKS: Final = f"""
SELECT r.id, l.digest FROM repository_blobs l
  JOIN repositories r ON r.id = l.repository_id {_OF_ACCOUNT}
"""
_IMAGES: Final = f"""
SELECT r.id, m.digest FROM manifests m JOIN repositories r ON r.id = m.repository_id {_OF_ACCOUNT}
"""
_BLOBS_OF_IMAGES: Final = f"""
SELECT r.id, m.digest, e.digest FROM manifest_blobs e JOIN manifests m ON m.id = e.manifest_id
  JOIN repositories r ON r.id = m.repository_id {_OF_ACCOUNT}
"""
_CHILDREN: Final = f"""
SELECT r.id, m.digest, c.digest FROM manifest_children e JOIN manifests m ON m.id = e.parent_id
  JOIN manifests c ON c.id = e.child_id AND c.repository_id = e.repository_id
  JOIN repositories r ON r.id = m.repository_id {_OF_ACCOUNT}
"""
_TAGS: Final = f"""
SELECT r.id, t.name, m.digest FROM tags t
  JOIN manifests m ON m.id = t.manifest_id AND m.repository_id = t.repository_id
  JOIN repositories r ON r.id = t.repository_id {_OF_ACCOUNT}
"""
_TOMBSTONES: Final = f"""
SELECT r.id, d.digest, d.tags,
       (SELECT count(*) FROM deleted_manifest_blobs b WHERE b.manifest_id = d.id),
       (SELECT count(*) FROM deleted_manifest_children c WHERE c.manifest_id = d.id)
  FROM deleted_manifests d JOIN repositories r ON r.id = d.repository_id {_OF_ACCOUNT}
"""
_DELETED_TAGS: Final = f"""
SELECT r.id, d.name, d.digest, d.has_image FROM deleted_tags d
  JOIN repositories r ON r.id = d.repository_id {_OF_ACCOUNT} AND d.restorable_until > ?
"""
_PINS: Final = f"""
SELECT r.id, m.digest, p.name FROM image_pins p
  JOIN manifests m ON m.id = p.manifest_id JOIN repositories r ON r.id = p.repository_id
  {_OF_ACCOUNT} AND (p.expires_at IS NULL OR p.expires_at > ?)
"""
_HISTORY: Final = f"""
SELECT r.id, e.tag, e.action, e.digest, e.previous_digest, e.principal
  FROM tag_events e JOIN repositories r ON r.id = e.repository_id {_OF_ACCOUNT} ORDER BY e.sequence
"""
_RUNS: Final = f"""
SELECT u.state, u.fault FROM runs u JOIN repositories r ON r.id = u.scope_id
 {_OF_ACCOUNT} AND u.state <> 'succeeded'
"""


class Reply(NamedTuple):
    """What the control plane answered."""

    status: int
    body: Any


@dataclass(frozen=True)
class World:
    """What all examples of one test share: a loop, and two workers over one database."""

    loop: asyncio.AbstractEventLoop
    installs: tuple[Install, Install]
    query: Query
    handles: Iterator[str]

    @property
    def clock(self) -> ManualClock:
        return self.installs[0].clock

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(coroutine)


@dataclass
class Tenant:
    """An account, and its ways to both planes of each worker."""

    world: World
    account: Account
    clients: Sequence[Client]
    """Of the data plane, where nobody need sign in."""
    principal: str = ""
    """Of the control plane; see `sign_in`."""
    token: str = ""

    @classmethod
    async def of(cls, world: World) -> Tenant:
        """Return a new account, signed in."""
        account = await world.installs[0].add_account(next(world.handles))
        access = OpenAccess(account.handle)
        made = cls(world, account, [Client(DataPlane(one.ctx, access)) for one in world.installs])
        await made.sign_in()
        return made

    async def sign_in(self) -> None:
        """Become another program, with every right, whose token is fresh."""
        for install in self.world.installs:
            await install.keys.refresh()
        install = self.world.installs[0]
        name = f"ci-{self.world.clock()}"
        program = await install.add_program(self.account, name, ALLOW_ALL)
        self.principal, self.token = program.crn, program.access_token

    async def ask(
        self,
        worker: int,
        method: str,
        path: str,
        document: object = None,
        query: Mapping[str, object] | None = None,
    ) -> Reply:
        """Ask the control plane of a worker."""
        app = self.world.installs[worker].app
        return await ask(app, method, path, self.token, document, query or {})


async def ask(
    app: Application,
    method: str,
    path: str,
    token: str,
    document: object,
    query: Mapping[str, object],
) -> Reply:
    """Speak ASGI; a client library would cost most of the time of a test of many requests."""
    body = b"" if document is None else json.dumps(document).encode()
    headers = [(b"host", b"registry.test"), (b"authorization", f"Bearer {token}".encode())]
    if body:
        headers += [(b"content-type", b"application/json")]
        headers += [(b"content-length", str(len(body)).encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(query).encode(),
        "headers": headers,
        "client": ("192.0.2.7", 40_000),
        "server": ("registry.test", 80),
        "extensions": {},
    }
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])
    answer: list[Any] = []

    async def receive() -> Any:  # noqa: ANN401 - a message
        return next(messages, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:  # noqa: ANN401 - a message
        answer.append(message)

    await app(scope, receive, send)
    told = b"".join(message.get("body", b"") for message in answer[1:])
    status: int = answer[0]["status"]
    assert status < 500, told
    return Reply(status, json.loads(told) if told else None)


@contextmanager
def open_world(url: str) -> Iterator[World]:
    """Open two workers over one database and one store."""
    store, clock = MemoryStore(), ManualClock()

    async def opened(stack: AsyncExitStack) -> tuple[Install, Install]:
        first, second = [
            await stack.enter_async_context(open_install(url, clock=clock)) for _ in range(2)
        ]
        return sharing(first), sharing(second)

    def sharing(install: Install) -> Install:
        return replace(install, ctx=replace(install.ctx, reader=store, writer=store))

    handles = (f"account-{number}" for number in itertools.count())
    with ExitStack() as closing, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        installs = runner.run(opened(stack))
        try:
            query = closing.enter_context(querying(url))
            yield World(runner.get_loop(), installs, query, handles)
        finally:
            runner.run(stack.aclose())


async def work(install: Install) -> None:
    """Carry out the lifecycle runs there are."""
    await run_due(install.database, [lifecycle_kind(install.ctx)], install.clock)


def check_rows(query: Query, handle: str, everything: Sequence[Repository], now: int) -> None:
    """Check that an account's rows are what the model has, of whatever it cannot be asked for."""
    ids = {each.id for each in everything}
    assert {row[0] for row in query(_REPOSITORIES, handle)} == ids
    assert _rows(query(_LINKS, handle)) == sorted(
        (each.id, digest) for each in everything for digest in each.blobs
    )
    images = [(each.id, image.document) for each in everything for image in each.images.values()]
    assert _rows(query(_IMAGES, handle)) == sorted(
        (where, document.digest) for where, document in images
    )
    assert _rows(query(_BLOBS_OF_IMAGES, handle)) == sorted(
        (where, document.digest, blob) for where, document in images for blob in document.blobs
    )
    present = {(where, document.digest) for where, document in images}
    assert _rows(query(_CHILDREN, handle)) == sorted(
        (where, document.digest, child)
        for where, document in images
        for child in document.children
        if (where, child) in present  # else it was deleted by force
    )
    assert _rows(query(_TAGS, handle)) == sorted(
        (each.id, tag, digest) for each in everything for tag, (digest, _) in each.tags.items()
    )
    tombstones = [
        (row[0], row[1], sorted(tag for tag, _ in json.loads(row[2])), *row[3:])
        for row in query(_TOMBSTONES, handle)
    ]
    assert sorted(tombstones) == sorted(
        (
            each.id,
            digest,
            tombstone.tags,
            len(tombstone.document.blobs),
            len(tombstone.document.children),
        )
        for each in everything
        for digest, tombstone in each.tombstones.items()
    )
    assert _rows(query(_DELETED_TAGS, handle, now)) == sorted(
        (each.id, tag, deleted.digest, deleted.digest in each.images)
        for each in everything
        for tag, deleted in each.deleted.items()
        if deleted.until > now
    )
    assert _rows(query(_PINS, handle, now)) == sorted(
        (each.id, digest, name)
        for each in everything
        for digest, image in each.images.items()
        for name, until in image.pins.items()
        if until is None or until > now
    )
    assert query(_RUNS, handle) == []
    _check_history(query(_HISTORY, handle), everything)


def _check_history(rows: Sequence[Sequence[Any]], everything: Sequence[Repository]) -> None:
    """Check the events of each tag, and that the last one tells where it points now."""
    kept: dict[tuple[str, str], list[Sequence[Any]]] = {}
    for repository_id, tag, *rest in rows:
        kept.setdefault((repository_id, tag), []).append(tuple(rest))
    told: dict[tuple[str, str], list[Sequence[Any]]] = {}
    for each in everything:
        for change in each.history:
            told.setdefault((each.id, change.tag), []).append(_row(change))
        for tag, (digest, _) in each.tags.items():
            last = kept.get((each.id, tag))
            assert last is None or last[-1][1] == digest
    assert kept == told


def _row(event: TagEvent) -> Sequence[Any]:
    return event.action, event.digest, event.previous, event.principal


def _rows(found: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in found)
