"""Pushes, mounts, replaced bytes and changes of keys meet: what is read is whole, or refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import httpx
import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Database, OutcomeUnknown
from cloudcore.kms.key import Key
from registry.blobstore.base import DataKey
from registry.oci.digest import digest_of
from registry.services.data_keys import DataKeys
from tests.databases import on_both_databases
from tests.dying import Kind, PassingDatabase
from tests.integration.sealed_world import SealedWorld, error_of, make_sealed_world
from tests.memory_store import MemoryStore
from tests.tenants import Install

DATA = b"bytes that several repositories want. " * 50
DISABLED = {"reason": "kms_key_disabled"}


class MeetingKeys(DataKeys):
    """Data keys; after the next wrap is made, and before it is written, something else happens."""

    meeting: Callable[[], Awaitable[object]] | None = None

    async def wrap_all(
        self, account_id: str, kms_key_id: str, data_keys: Sequence[tuple[str, DataKey]]
    ) -> list[bytes]:
        made = await super().wrap_all(account_id, kms_key_id, data_keys)
        meeting, self.meeting = self.meeting, None
        if meeting is not None:
            await meeting()
        return made


@pytest.fixture
async def world(install: Install) -> AsyncIterator[SealedWorld]:
    async with install.connect() as docker:
        yield await make_sealed_world(install, docker)


@pytest.fixture
def keys(world: SealedWorld) -> MeetingKeys:
    """Return the data keys of the process that something else meets."""
    return MeetingKeys(world.install.kms.vault)


@pytest.fixture
async def met(world: SealedWorld, keys: MeetingKeys) -> AsyncIterator[SealedWorld]:
    """Return the same install, served by a process that something else meets."""
    async with world.served_by(data_keys=keys) as met:
        yield met


async def check_whole(world: SealedWorld, data: bytes, *repositories: str) -> None:
    """Check that each wrap opens the bytes that its object has, and that these are pulled."""
    ctx = world.install.ctx
    assert ctx.data_keys is not None
    for object_id, stored_id, encoding, _, state in await world.objects(data):
        wraps = await world.wraps(object_id)
        assert bool(wraps) == (encoding == "sealed")
        for kms_key_id, wrapped in wraps.items():
            key = await ctx.data_keys.open(world.account.id, kms_key_id, wrapped, stored_id)
            if state == "live":
                await (await ctx.reader.open(stored_id, len(data), key)).aclose()
    for repository in repositories:
        answer = await world.pull(repository, data)
        assert (answer.status_code, answer.content) == (200, data)


@on_both_databases
@pytest.mark.parametrize("is_mount", [True, False])
async def test_a_mount_or_a_push_of_known_bytes_meets_a_replacement(
    world: SealedWorld, met: SealedWorld, keys: MeetingKeys, *, is_mount: bool
) -> None:
    await world.push("red", DATA)
    key = await world.make_bound_key("blue", "blue")
    ((_, before, *_),) = await world.objects(DATA)

    async def replace_bytes() -> None:
        await world.age(DATA)
        assert (await world.push("red", DATA)).status_code == 201

    keys.meeting = replace_bytes
    met_by = met.mount("blue", DATA, "red") if is_mount else met.push("blue", DATA)
    assert (await met_by).status_code == 201
    ((_, after, *_),) = await world.objects(DATA)
    assert before != after
    assert (await world.link("blue", DATA))[1] == key.id
    await check_whole(world, DATA, "red", "blue")


@on_both_databases
async def test_a_replacement_meets_a_mount_under_another_key(
    world: SealedWorld, met: SealedWorld, keys: MeetingKeys
) -> None:
    await world.push("red", DATA)
    key = await world.make_bound_key("blue", "blue")
    await world.age(DATA)
    keys.meeting = lambda: world.mount("blue", DATA, "red")
    assert (await met.push("red", DATA)).status_code == 201
    assert (await world.link("blue", DATA))[1] == key.id
    await check_whole(world, DATA, "red", "blue")


@on_both_databases
async def test_a_mount_meets_the_end_of_its_key(
    world: SealedWorld, met: SealedWorld, keys: MeetingKeys
) -> None:
    await world.push("red", DATA)
    key = await world.make_bound_key("blue", "blue")
    keys.meeting = lambda: world.disable(key)
    assert (await met.mount("blue", DATA, "red")).status_code == 403
    ((object_id, *_),) = await world.objects(DATA)
    assert key.id not in await world.wraps(object_id)
    await check_whole(world, DATA, "red")


@on_both_databases
async def test_a_replacement_meets_the_end_of_the_key_of_others(
    world: SealedWorld, met: SealedWorld, keys: MeetingKeys
) -> None:
    await world.push("red", DATA)
    key = await world.make_bound_key("blue", "blue")
    await world.mount("blue", DATA, "red")
    await world.age(DATA)
    keys.meeting = lambda: world.disable(key)
    assert (await met.push("red", DATA)).status_code == 201
    old, new = await world.objects(DATA)
    assert (await world.link("blue", DATA))[0] == old[0]
    assert (await world.link("red", DATA))[0] == new[0]
    await world.enable(key)
    await check_whole(world, DATA, "red", "blue")


@pytest.mark.parametrize("is_session", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_key_is_disabled_or_deleted_while_its_bytes_arrive(
    world: SealedWorld, *, is_session: bool, is_deleted: bool
) -> None:
    key = await world.make_bound_key("mine", "red")
    path = f"{world.blobs('red')}/uploads/"
    if is_session:
        path = (await world.begin("red")).headers["location"]
    path += f"?digest={digest_of(DATA)}"

    async def body() -> AsyncIterator[bytes]:
        yield DATA[:100]
        await (world.delete(key) if is_deleted else world.disable(key))
        yield DATA[100:]

    method = "PUT" if is_session else "POST"
    answer = await world.docker.request(method, path, content=body())
    gone = (404, "DENIED", {"reason": "kms_key_not_found"})
    assert error_of(answer) == (gone if is_deleted else (403, "DENIED", DISABLED))
    assert await world.objects(DATA) == []
    await (world.bind("red", None) if is_deleted else world.enable(key))
    answer = await world.docker.request(method, path, content=DATA)
    assert answer.status_code == 201, answer.text
    await check_whole(world, DATA, "red")
    store = world.install.ctx.reader
    assert isinstance(store, MemoryStore)
    assert len(store.files.objects) == 1


class LosingDatabase(PassingDatabase):
    """A database whose next change that writes the rows of a blob is written, and its answer lost.

    Before the caller knows, something else happens.
    """

    def __init__(self, database: Database, meeting: Callable[[], Awaitable[object]]) -> None:
        super().__init__(database)
        self._meetings = [meeting]

    async def after(self, _kind: Kind, call: Callable[..., object], _result: object) -> None:
        if call.__name__ == "_record_rows" and self._meetings:
            await self._meetings.pop()()
            raise OutcomeUnknown("lost")


async def test_bytes_whose_rows_may_be_written_stay_when_the_key_is_disabled(
    world: SealedWorld,
) -> None:
    key = await world.make_bound_key("mine", "red")
    database = LosingDatabase(world.install.database, lambda: world.disable(key))
    async with world.served_by(database=database) as losing:
        assert (await losing.push("red", DATA)).status_code == 503
    await world.enable(key)
    await check_whole(world, DATA, "red")


@on_both_databases
async def test_many_meet_at_once(world: SealedWorld) -> None:
    chance = random.Random(7)
    made = [None, *[await world.make_key(f"key-{number}") for number in range(3)]]
    blobs = [DATA + bytes([number]) for number in range(3)]

    async def pull(repository: str, data: bytes) -> httpx.Response:
        answer = await world.pull(repository, data)
        assert answer.status_code == 404 or answer.content == data
        return answer

    async def act() -> None:
        repository, other = chance.sample(["red", "blue"], 2)
        data = chance.choice(blobs)
        commands = [
            world.push(repository, data),
            world.mount(repository, data, other),
            pull(repository, data),
            world.age(data),
        ]
        chosen = chance.choice([0, 0, 1, 2, 3])
        for number, each in enumerate(commands):
            if number != chosen:
                each.close()
        answer = await commands[chosen]
        assert answer is None or answer.status_code in (200, 201, 202, 404)

    for _ in range(12):
        await world.bind(chance.choice(["red", "blue"]), chance.choice(made))
        await asyncio.gather(*(act() for _ in range(12)))
    for repository in ("red", "blue"):
        for data in blobs:
            assert (await world.push(repository, data)).status_code == 201
    for data in blobs:
        await check_whole(world, data, "red", "blue")


@pytest.fixture
async def plain(world: SealedWorld) -> AsyncIterator[SealedWorld]:
    """Return the same install, served by a process that does not seal."""
    async with world.served_by(seals=False) as plain:
        yield plain


async def test_without_sealing_new_bytes_are_plain_and_sealed_ones_readable(
    world: SealedWorld, plain: SealedWorld
) -> None:
    await world.push("red", DATA)
    await plain.push("red", b"plain")
    assert [each[2] for each in await world.objects(b"plain")] == ["plain"]
    assert await world.link("red", b"plain") == ((await world.objects(b"plain"))[0][0], None)
    assert (await plain.push("blue", DATA)).status_code == 201  # known bytes stay sealed
    await check_whole(plain, DATA, "red", "blue")
    await check_whole(world, b"plain", "red")
    assert (await world.mount("blue", b"plain", "red")).status_code == 201
    await check_whole(world, b"plain", "red", "blue")


async def test_without_sealing_a_key_that_is_disabled_refuses_no_push(
    world: SealedWorld, plain: SealedWorld
) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await world.disable(key)
    assert (await plain.push("red", DATA)).status_code == 201
    assert [each[2:4] for each in await world.objects(DATA)] == [("sealed", 0), ("plain", 1)]
    assert (await plain.pull("red", DATA)).content == DATA


@pytest.mark.parametrize("is_sealing", [False, True])
async def test_a_replacement_changes_the_encoding_for_all(
    world: SealedWorld,
    plain: SealedWorld,
    is_sealing: bool,
) -> None:
    first, second = (plain, world) if is_sealing else (world, plain)
    key = await world.make_bound_key("blue", "blue")
    await first.push("red", DATA)
    await first.push("blue", DATA)
    await world.age(DATA)
    assert (await second.push("red", DATA)).status_code == 201
    ((_, _, encoding, *_),) = await world.objects(DATA)
    assert encoding == ("sealed" if is_sealing else "plain")
    assert (await world.link("blue", DATA))[1] == (key.id if is_sealing else None)
    await check_whole(world, DATA, "red", "blue")


@pytest.mark.parametrize("end", [SealedWorld.disable, SealedWorld.delete])
async def test_plain_bytes_replace_no_sealed_ones_that_a_key_has_shut(
    world: SealedWorld,
    plain: SealedWorld,
    end: Callable[[SealedWorld, Key], Awaitable[None]],
) -> None:
    key = await world.make_bound_key("blue", "blue")
    await world.push("red", DATA)
    await world.push("blue", DATA)
    await end(world, key)
    shut = error_of(await world.pull("blue", DATA))
    await world.age(DATA)
    assert (await plain.push("red", DATA)).status_code == 201
    assert error_of(await world.pull("blue", DATA)) == shut
    assert (await world.pull("red", DATA)).content == DATA


async def test_a_session_begun_by_one_ends_at_the_other(
    world: SealedWorld, plain: SealedWorld
) -> None:
    """As it began, plain or sealed."""
    for first, second, data in ((plain, world, DATA), (world, plain, DATA + uuid7().encode())):
        location = (await first.begin("red")).headers["location"]
        location = (await first.docker.patch(location, content=data[:50])).headers["location"]
        answer = await second.docker.put(f"{location}?digest={digest_of(data)}", content=data[50:])
        assert answer.status_code == 201, answer.text
        await check_whole(second, data, "red")
