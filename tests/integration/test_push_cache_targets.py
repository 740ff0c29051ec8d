"""Small pushes to where the process has just written: proved by one transaction, or looked at."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Final, cast

import httpx
import pytest
from sqlalchemy import String, bindparam, literal_column

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.kms.providers import EmbeddedProvider
from cloudcore.kms.rows import erase_versions
from cloudcore.kms.vault import MAX_AGE_SECONDS
from registry.errors import KmsKeyDeleted
from registry.metadata.repositories.repository import find_repository
from registry.metadata.tables import repositories
from registry.oci.digest import digest_of
from registry.oci.reference import Name
from registry.services.blobs.sealing import cached_target
from registry.services.blobs.small_uploads import finish_sealed
from registry.services.blobs.upload_sessions import get_session
from registry.services.repositories.details import delete_repository
from registry.settings.groups import Limits
from tests.databases import on_both_databases
from tests.integration.counting import CountingDatabase
from tests.integration.sealed_world import SealedWorld, error_of, make_sealed_world
from tests.kms_world import KEYRING
from tests.tenants import open_install

pytestmark = on_both_databases

LIMIT: Final = 4096
_LEAVE_BEHIND: Final = Statement(
    repositories.update()
    .where(repositories.c.id == bindparam("of_id", type_=String()))
    .values(source=literal_column("'pull_through_cache'"))
)
Push = Callable[[SealedWorld, bytes], Awaitable[httpx.Response]]


@pytest.fixture
async def world(metadata_url: str) -> AsyncIterator[SealedWorld]:
    """Return an install that seals blobs, and has pushed to ``red``."""
    limits = Limits(inline_max_bytes=LIMIT)
    async with open_install(metadata_url, limits=limits) as install, install.connect() as docker:
        made = await make_sealed_world(install, docker)
        assert (await made.push("red", b"the first")).status_code == 201
        yield made


async def in_one_request(world: SealedWorld, data: bytes) -> httpx.Response:
    return await world.push("red", data)


async def in_two_requests(world: SealedWorld, data: bytes) -> httpx.Response:
    location = (await world.begin("red")).headers.get("location", "/v2/acme/red/blobs/uploads/0")
    return await finish(world, location, data, data)


async def finish(
    world: SealedWorld, location: str, whole: bytes, body: bytes = b""
) -> httpx.Response:
    return await world.docker.put(f"{location}?digest={digest_of(whole)}", content=body)


@pytest.fixture(params=[in_one_request, in_two_requests])
def push(request: pytest.FixtureRequest) -> Push:
    return cast("Push", request.param)


async def test_a_known_place_is_read_in_the_transaction_that_writes(world: SealedWorld) -> None:
    async with world.counting() as (seen, counted):
        assert (await in_one_request(seen, b"one")).status_code == 201
        assert counted.calls == (0, 1)
        assert (await in_two_requests(seen, b"two")).status_code == 201
        assert counted.calls == (1, 2)
        location = (await seen.begin("red")).headers["location"]
        assert (await seen.docker.patch(location, content=b"three")).status_code == 202
        assert (await finish(seen, location, b"three")).status_code == 201
        assert counted.calls == (3, 4)
    for data in (b"one", b"two", b"three"):
        assert (await world.pull("red", data)).content == data
        assert (await world.link("red", data))[1] == (await world.platform_key()).id


async def test_a_new_blob_takes_one_statement_if_each_is_a_round_trip(world: SealedWorld) -> None:
    """One that is known, or is linked in the target, takes as many as it needs."""
    counted = CountingDatabase(world.install.ctx.database)
    async with world.served_by(database=counted) as seen:
        assert (await seen.push("blue", b"makes the target known")).status_code == 201
        counted.start()
        assert (await seen.push("red", b"data")).status_code == 201
        is_joined = await world.install.database.read(lambda tx: tx.joins_changes)
        assert len(counted.seen) == (1 if is_joined else 5)
        for repository in ("red", "blue", "blue"):
            assert (await seen.push(repository, b"data")).status_code == 201
    for repository in ("red", "blue"):
        assert (await world.pull(repository, b"data")).content == b"data"
        assert (await world.link(repository, b"data"))[1] == (await world.platform_key()).id
    assert len(await world.objects(b"data")) == 1


async def test_pushes_of_the_same_new_blob_that_meet_all_succeed(world: SealedWorld) -> None:
    await world.make_bound_key("mine", "blue")
    assert (await world.push("blue", b"makes the target known")).status_code == 201
    for data in (os.urandom(99) for _ in range(5)):
        pushes = [world.push(name, data) for name in ("red", "blue") * 4]
        assert {answer.status_code for answer in await asyncio.gather(*pushes)} == {201}
        assert len(await world.objects(data)) == 1
        for name in ("red", "blue"):
            assert (await world.pull(name, data)).content == data


async def test_a_new_binding_seals_the_next_push(world: SealedWorld, push: Push) -> None:
    key = await world.make_bound_key("mine", "red")
    assert (await push(world, b"data")).status_code == 201
    assert (await world.link("red", b"data"))[1] == key.id
    await world.bind("red", None)
    assert (await push(world, b"more")).status_code == 201
    assert (await world.link("red", b"more"))[1] == (await world.platform_key()).id


async def test_a_new_binding_between_two_requests_counts(world: SealedWorld) -> None:
    whole, parted = [(await world.begin("red")).headers["location"] for _ in range(2)]
    assert (await world.docker.patch(parted, content=b"parted")).status_code == 202
    key = await world.make_bound_key("mine", "red")
    assert (await finish(world, whole, b"whole", b"whole")).status_code == 201
    assert (await finish(world, parted, b"parted")).status_code == 201
    for data in (b"whole", b"parted"):
        assert (await world.link("red", data))[1] == key.id
        assert (await world.pull("red", data)).content == data


async def test_a_deleted_repository_gets_nothing(world: SealedWorld, push: Push) -> None:
    location = (await world.begin("red")).headers["location"]
    change = world.install.ctx.change_by("someone")
    of = world.account.id, world.ids["red"], change
    await world.install.database.write(delete_repository, *of, force=True)
    assert (await push(world, b"data")).status_code == 201  # to one that is created
    found = await world.install.database.read(find_repository, "acme", "red")
    assert found is not None
    assert found.id != world.ids["red"]
    created = replace(world, ids={"red": found.id})
    assert (await created.link("red", b"data"))[1] is not None
    assert error_of(await world.docker.patch(location, content=b"x"))[1] == "BLOB_UPLOAD_UNKNOWN"
    late = await finish(world, location, b"data", b"data")
    assert error_of(late)[1] == "BLOB_UPLOAD_UNKNOWN"


async def test_a_place_that_cannot_be_proved_is_not_kept(world: SealedWorld) -> None:
    """Else each push to what a deleted rule has left behind would first fail in a transaction."""
    await world.install.database.write(_leave_behind, world.ids["red"])
    async with world.counting() as (seen, counted):
        for data in (b"one", b"two", b"three"):
            assert (await in_one_request(seen, data)).status_code == 201
        assert counted.durable == 4  # the target was known before


def _leave_behind(tx: Connection, repository_id: str) -> None:
    tx.execute(_LEAVE_BEHIND, of_id=repository_id)


async def test_wrong_bytes_are_refused_and_end_a_session(world: SealedWorld) -> None:
    wrong = await world.docker.post(
        f"{world.blobs('red')}/uploads/?digest={digest_of(b'data')}", content=b"other"
    )
    assert error_of(wrong)[1] == "DIGEST_INVALID"
    location = (await world.begin("red")).headers["location"]
    assert error_of(await finish(world, location, b"data", b"other"))[1] == "DIGEST_INVALID"
    assert error_of(await finish(world, location, b"data", b"data"))[1] == "BLOB_UPLOAD_UNKNOWN"
    assert (await world.pull("red", b"data")).status_code == 404


@pytest.mark.parametrize("before", [1, LIMIT, LIMIT + 1])
async def test_a_last_request_with_few_bytes_of_more(world: SealedWorld, before: int) -> None:
    """The target is known, but the session is not as assumed: its body is received once more."""
    first, last = os.urandom(before), os.urandom(LIMIT)
    location = (await world.begin("red")).headers["location"]
    assert (await world.docker.patch(location, content=first)).status_code == 202
    assert (await finish(world, location, first + last, last)).status_code == 201
    assert (await world.pull("red", first + last)).content == first + last


async def test_a_session_ends_once(world: SealedWorld) -> None:
    location = (await world.begin("red")).headers["location"]
    assert (await finish(world, location, b"data", b"data")).status_code == 201
    again = await finish(world, location, b"data", b"data")
    assert error_of(again)[1] == "BLOB_UPLOAD_UNKNOWN"


async def test_material_open_for_long_is_opened_anew(world: SealedWorld, push: Push) -> None:
    world.install.clock.advance(MAX_AGE_SECONDS + 1)
    await world.sign_in()
    assert (await push(world, b"data")).status_code == 201
    assert (await world.pull("red", b"data")).content == b"data"


async def test_a_session_is_not_finished_in_another_place(world: SealedWorld) -> None:
    """The target of another repository proves nothing of this one, nor what is linked in it."""
    assert (await world.push("blue", b"the first")).status_code == 201
    location = (await world.begin("red")).headers["location"]
    assert (await world.docker.patch(location, content=b"data")).status_code == 202
    ctx, upload_id = world.install.ctx, location.rpartition("/")[2]
    name = Name("acme", "red")
    of = name, upload_id, ctx.clock()
    session = await ctx.database.read(get_session, ctx, *of)
    targets = [cached_target(ctx, Name("acme", each)) for each in ("blue", "red")]
    outcomes = []
    for known in targets:
        assert known is not None
        writing, digest = known.writing, digest_of(b"data")
        outcomes.append(await finish_sealed(ctx, name, session, writing, digest, known.target))
    assert outcomes == [False, True]
    assert (await world.link("red", b"data"))[1] == (await world.platform_key()).id


async def test_a_key_that_was_erased_since_it_was_looked_at_is_deleted(world: SealedWorld) -> None:
    """Other keys have taken its target among the open ones, and there is no material any more."""
    ctx = world.install.ctx
    known = cached_target(ctx, Name("acme", "red"))
    assert known is not None
    assert known.writing is not None
    await ctx.database.write(erase_versions, world.account.id, known.writing.kms_key_id)
    others = world.with_providers(EmbeddedProvider(KEYRING))
    assert ctx.data_keys is not None
    data_key = ctx.data_keys.new(world.account.id)
    with pytest.raises(KmsKeyDeleted):
        await others.wrap_under(known.writing.usable, [("id", data_key)])
