"""Links move to another key or object on PostgreSQL while others wait for their rows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import httpx
import pytest
from sqlalchemy import bindparam, null

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.gc.purge import purge_deleted_repositories
from registry.metadata.blobs import objects as blobs
from registry.metadata.blobs.objects import NewObject
from registry.metadata.blobs.wraps import put_wrap
from registry.metadata.collector.collection import lock_objects
from registry.metadata.tables import repository_blobs
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from tests.integration.sealed_world import SealedWorld, make_sealed_world
from tests.jobs import until
from tests.recount import querying
from tests.tenants import Install

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(120)]

T = TypeVar("T")

_MOVE = Statement(
    repository_blobs.update()
    .where(
        repository_blobs.c.repository_id == bindparam("repository"),
        repository_blobs.c.digest == bindparam("of"),
    )
    .values(object_id=bindparam("new"), kms_key_id=null())
)
DATA = b"bytes whose link moves. " * 50
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
async def world(install: Install) -> AsyncIterator[SealedWorld]:
    async with install.connect() as docker:
        yield await make_sealed_world(install, docker)


async def meet(
    world: SealedWorld,
    url: str,
    change: Callable[[Connection], None],
    act: Callable[[], Awaitable[T]],
) -> T:
    """Act while a change is written; commit the change once the act waits for it."""
    is_written, may_end = threading.Event(), threading.Event()

    def hold(tx: Connection) -> None:
        try:
            change(tx)
        finally:
            is_written.set()
        assert may_end.wait(60)

    async def is_waiting() -> bool:
        with querying(url) as query:
            ((count,),) = query(WAITING)
        return bool(count) or answering.done()

    changing = asyncio.create_task(world.install.database.write(hold))
    try:
        await asyncio.to_thread(is_written.wait, 60)
        answering = asyncio.ensure_future(act())
        await until(is_waiting)
    finally:
        may_end.set()
    await changing
    return await answering


async def move_to_key(world: SealedWorld) -> Callable[[Connection], None]:
    """Return a change that moves a link to another key."""
    object_id, old = await world.link("red", DATA)
    assert old is not None
    wrapped = (await world.wraps(object_id))[old]
    key = await world.make_key("new")
    to = world.ids["red"], world.account.id, str(digest_of(DATA)), object_id, len(DATA)

    def move(tx: Connection) -> None:
        lock_objects(tx, world.account.id, [object_id])
        assert put_wrap(tx, world.account.id, object_id, key.id, wrapped)
        blobs.link_object(tx, *to, world.install.clock(), key.id)

    return move


async def move_to_other(world: SealedWorld) -> tuple[str, Callable[[Connection], None]]:
    """Return another object with these bytes, and a change that moves a link to it.

    The object before is locked by the change too, and neither of them is the current one.
    """
    await world.push("red", DATA)
    ((old_id, *_),) = await world.objects(DATA)
    new_id, now = uuid7(), world.install.clock()
    new = NewObject(new_id, str(digest_of(DATA)), len(DATA), len(DATA), "plain", new_id)
    write = world.install.database.write
    await write(blobs.retire_object, world.account.id, old_id)
    await write(blobs.keep_object, world.account.id, new, now)
    await write(blobs.retire_object, world.account.id, new_id)

    def move(tx: Connection) -> None:
        lock_objects(tx, world.account.id, [old_id, new_id])
        tx.execute(_MOVE, repository=world.ids["red"], of=new.digest, new=new_id)

    return new_id, move


async def test_a_blob_of_a_manifest_moves_to_another_key(
    world: SealedWorld, postgresql_database: str
) -> None:
    await world.push("red", DATA)
    blob = {"mediaType": "application/x", "digest": digest_of(DATA), "size": len(DATA)}
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blob, "layers": []}
    body = json.dumps(document).encode()
    path = f"/v2/acme/red/manifests/{digest_of(body)}"
    kind = {"content-type": OCI_MANIFEST}

    async def put() -> httpx.Response:
        return await world.docker.put(path, content=body, headers=kind)

    answer = await meet(world, postgresql_database, await move_to_key(world), put)
    assert answer.status_code == 201, answer.text


async def test_a_blob_that_moves_to_another_object_is_detached_from_that(
    world: SealedWorld, postgresql_database: str
) -> None:
    await world.push("red", DATA)
    ((old_id, *_),) = await world.objects(DATA)
    await world.install.database.write(blobs.retire_object, world.account.id, old_id)
    new_id, now = uuid7(), world.install.clock()
    new = NewObject(new_id, str(digest_of(DATA)), len(DATA), len(DATA), "plain", new_id)
    to = world.ids["red"], world.account.id, new.digest, new_id, new.size

    def move(tx: Connection) -> None:
        blobs.keep_object(tx, world.account.id, new, now)
        blobs.link_object(tx, *to, now)
        lock_objects(tx, world.account.id, [old_id])

    async def detach() -> httpx.Response:
        return await world.docker.delete(f"{world.blobs('red')}/{new.digest}")

    answer = await meet(world, postgresql_database, move, detach)
    assert answer.status_code == 202, answer.text
    states = {each[0]: each[4] for each in await world.objects(DATA)}
    assert states[new_id] == "condemned"


async def test_an_object_that_a_push_takes_the_link_from_is_left(
    world: SealedWorld, postgresql_database: str
) -> None:
    """The link moves to another old object while the push waits to move it to the current one."""
    other, move = await move_to_other(world)

    async def push() -> httpx.Response:
        return await world.push("red", DATA)

    answer = await meet(world, postgresql_database, move, push)
    assert answer.status_code == 201, answer.text
    current = (await world.link("red", DATA))[0]
    states = {each[0]: each[4] for each in await world.objects(DATA)}
    assert states[current] == "live"
    assert states[other] == "condemned"


async def test_an_object_that_a_link_moves_to_while_its_repository_is_purged(
    world: SealedWorld, postgresql_database: str
) -> None:
    other, move = await move_to_other(world)

    with querying(postgresql_database) as query:
        query(
            "UPDATE repositories SET deleted_at = 1, restorable_until = 1 WHERE id = ?"
            " RETURNING id",
            world.ids["red"],
        )

    async def purge() -> int:
        return await purge_deleted_repositories(world.install.ctx)

    await meet(world, postgresql_database, move, purge)
    states = {each[0]: each[4] for each in await world.objects(DATA)}
    assert set(states.values()) == {"condemned"}
    assert other in states
