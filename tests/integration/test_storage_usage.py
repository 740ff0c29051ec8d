"""What is stored, shared and freed: each number beside what really goes when it is deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import httpx
import pytest

from cloudcore.db.base import Connection
from cloudcore.db.sqlite_connection import SqliteConnection
from cloudcore.identity.rows.accounts import Account
from cloudcore.objects.damage import ABSENT
from registry.metadata.blobs.objects import BLOB_ROWS, linked_object
from registry.metadata.repositories.repository import find_visible_repository
from registry.oci.digest import digest_of
from registry.services import storage_usage as storage
from tests.databases import on_both_databases
from tests.integration.pushing import CONFIG, PATH, Pusher, pusher, refused, signed_in
from tests.recount import Query, querying
from tests.tenants import ALLOW_ALL, Install, Program, bearer, let

BASE: Final = b"b" * 1000
"""The layer that images share."""
SEAL: Final = 104
"""What a sealed blob of less than 1 MiB takes beside its bytes."""
DAY: Final = 24 * 3600


@dataclass
class World:
    """An account with a program that may do everything, and a client signed in as it."""

    install: Install
    account: Account
    program: Program
    client: httpx.AsyncClient
    ids: dict[str, str] = field(default_factory=dict)

    async def repository(self, name: str) -> Pusher:
        self.ids[name] = await self.install.add_repository(self.account, name)
        return await pusher(self.install, self.program, f"{self.account.handle}/{name}")

    async def pass_time(self, days: int) -> None:
        """Let the clock go on, past the end of the client's token."""
        self.install.clock.advance(days * DAY + 1)
        name = f"after-{days}-days"
        program = await self.install.add_program(self.account, name, ALLOW_ALL)
        self.client.headers.update(bearer(program.access_token))

    async def of_image(self, repository: str, digest: str) -> dict[str, Any]:
        found = await self.read(f"{PATH}/{self.ids[repository]}/images/{digest}/storage")
        return found | {"unused_digests": sorted(found["unused_digests"])}

    async def of_repository(self, name: str) -> dict[str, int]:
        return await self.read(f"{PATH}/{self.ids[name]}/storage")

    async def usage(self, query: str = "") -> dict[str, Any]:
        return await self.read(f"/v1/storage-usage{query}")

    async def read(self, path: str) -> dict[str, Any]:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        (record,) = answer.json().values()
        return dict(record)


@pytest.fixture
async def world(install: Install) -> World:
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    client = signed_in(install, program)
    return World(install, account, program, client)


def image(
    size: int,
    exclusive: int,
    freed: int | None = None,
    restorable: int = 0,
    unused: Collection[str] = (),
) -> dict[str, Any]:
    """Return the record of an image; without `freed`, of one that is no index."""
    return {
        "size_bytes": size,
        "exclusive_bytes": exclusive,
        "shared_bytes": size - exclusive,
        "freed_bytes": exclusive if freed is None else freed,
        "restorable_bytes": restorable,
        "unused_children": len(unused),
        "unused_digests": sorted(unused),
    }


async def test_another_account_shares_nothing(world: World) -> None:
    digest = await (await world.repository("r")).image(BASE)
    listed = (await world.client.get(f"{PATH}/{world.ids['r']}/images")).json()["images"]
    assert await world.of_image("r", listed[0]["id"]) == await world.of_image("r", digest)
    other = await world.install.add_account("other")
    program = await world.install.add_program(other, "ci", ALLOW_ALL)
    await world.install.add_repository(other, "r")
    await (await pusher(world.install, program, "other/r")).image(BASE)
    size = 1000 + len(CONFIG)
    assert await world.of_image("r", digest) == image(size, size)
    assert (await world.of_repository("r"))["exclusive_bytes"] == size
    assert (await world.usage())["unique_bytes"] == size


@on_both_databases
async def test_an_index_is_told_alone_and_with_its_children(world: World) -> None:
    docker = await world.repository("r")
    arm, amd = await docker.image(b"a" * 10), await docker.image(b"m" * 200)
    index = await docker.index(arm, amd, tag="v1")
    size = 210 + len(CONFIG)
    assert await world.of_image("r", index) == image(size, size, 0, unused=[arm, amd])
    # A child alone: its config is the other's too.
    assert await world.of_image("r", arm) == image(10 + len(CONFIG), 10)

    # A child with a tag of its own, a pin of its own, or in another index, stays.
    tagged = f"{PATH}/{world.ids['r']}/tags/arm"
    assert (await world.client.put(tagged, json={"digest": arm})).status_code == 201
    assert await world.of_image("r", index) == image(size, 200, 0, unused=[amd])
    assert (await world.client.delete(tagged)).status_code == 204
    pin = f"{PATH}/{world.ids['r']}/images/{amd}/pins/prod"
    assert (await world.client.put(pin, json={})).status_code == 201
    assert await world.of_image("r", index) == image(size, 10, 0, unused=[arm])
    assert (await world.client.delete(pin)).status_code == 204
    other = await docker.index(amd)
    assert await world.of_image("r", index) == image(size, 10, 0, unused=[arm])
    # An index of indexes takes all with it that it alone reaches.
    top = await docker.index(index, other)
    told = await world.of_image("r", top)
    assert told == image(size, 0, 0, unused=[other])  # v1 holds the index
    assert (await world.client.delete(f"{PATH}/{world.ids['r']}/tags/v1")).status_code == 204
    told = await world.of_image("r", top)
    assert told == image(size, size, 0, unused=[index, other, arm, amd])
    told = await world.read(f"{PATH}/{world.ids['r']}/images/{top}/storage")
    for digest in (top, *told["unused_digests"]):  # in this order none is in the way
        await docker.delete(digest)


@on_both_databases
@pytest.mark.parametrize("undelete_days", [0, 7])
async def test_what_is_said_to_be_freed_is_freed(world: World, undelete_days: int) -> None:
    """By deleting it: at once if nothing can be undone, else once it cannot be any more."""
    body = {"undelete_days": undelete_days}
    answer = await world.client.patch("/v1/registry-settings", json=body)
    assert answer.status_code == 200, answer.text
    docker = await world.repository("r")
    keep = await docker.image(BASE, b"k")
    child = await docker.image(BASE, b"c" * 50)
    index = await docker.index(child, keep)
    await docker.index(keep)
    said = await world.of_image("r", index)
    assert said["exclusive_bytes"] == 50
    before = await world.usage()
    await docker.delete(index)
    await docker.delete(child)
    usage = await world.usage()
    assert before["unique_bytes"] - usage["unique_bytes"] == 50
    assert usage["stored_bytes"] == before["stored_bytes"]  # rule 6
    name = "restorable_bytes" if undelete_days else "pending_sweep_bytes"
    assert usage[name] - before[name] == 50 + SEAL
    await world.pass_time(undelete_days)
    usage = await world.usage()
    assert usage["pending_sweep_bytes"] - before["pending_sweep_bytes"] == 50 + SEAL
    assert usage["restorable_bytes"] == 0


@on_both_databases
async def test_what_a_tombstone_holds_is_told(world: World) -> None:
    docker = await world.repository("r")
    live = await docker.image(BASE, b"l")
    gone = await docker.image(BASE, b"g" * 20)
    await docker.delete(gone)
    size = 1000 + 1 + len(CONFIG)
    # The base would go with `live`, were it not for what may be restored.
    assert await world.of_image("r", live) == image(size, size, restorable=size - 1)
    assert await world.of_repository("r") == {
        "logical_bytes": size,
        "size_bytes": size,
        "exclusive_bytes": size,
        "shared_bytes": 0,
        "restorable_bytes": 20,
    }
    await world.pass_time(7)
    assert await world.of_image("r", live) == image(size, size)
    assert (await world.of_repository("r"))["restorable_bytes"] == 0


@on_both_databases
async def test_a_deleted_repository_needs_nothing_but_can_be_restored(world: World) -> None:
    here, there = await world.repository("here"), await world.repository("there")
    digest = await here.image(BASE)
    await there.image(BASE, b"t" * 40)
    size = 1000 + len(CONFIG)
    assert await world.of_image("here", digest) == image(size, 0)
    path = f"{PATH}/{world.ids['there']}?force=true"
    assert (await world.client.delete(path)).status_code == 204
    assert await world.of_image("here", digest) == image(size, size, restorable=size)
    usage = await world.usage("?group_by=repository")
    assert [each["repository"]["name"] for each in usage["repositories"]] == ["here"]
    assert (usage["unique_bytes"], usage["restorable_bytes"]) == (size, 40 + SEAL)
    await world.pass_time(7)
    usage = await world.usage()
    assert (usage["restorable_bytes"], usage["pending_sweep_bytes"]) == (0, 40 + SEAL)


@on_both_databases
async def test_what_deduplication_saves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = await world.usage("?group_by=repository")
    assert nothing.pop("dedup_ratio") == 1
    assert nothing.pop("as_of").endswith("Z")
    assert not any(nothing.values())
    one, two = await world.repository("one"), await world.repository("two")
    await world.repository("empty")
    first, second = await one.image(BASE, b"1"), await one.image(BASE, b"22")
    await one.index(first, second)
    await two.image(BASE, b"333")
    loose = await two.docker.post(
        "/v2/acme/two/blobs/uploads/?digest=" + digest_of(b"l" * 500), content=b"l" * 500
    )
    assert loose.status_code == 201

    monkeypatch.setattr(storage, "_SLICE", 2)  # more than one of everything
    usage = await world.usage("?group_by=repository")
    config = len(CONFIG)
    assert usage["logical_bytes"] == 3 * (1000 + config) + 1 + 2 + 3
    assert usage["unique_bytes"] == 1000 + config + 1 + 2 + 3
    assert usage["dedup_ratio"] == round(usage["logical_bytes"] / usage["unique_bytes"], 4)
    assert usage["stored_bytes"] == usage["unique_bytes"] + 500 + 6 * SEAL
    assert usage["pending_sweep_bytes"] == 500 + SEAL
    assert usage["restorable_bytes"] == 0
    assert usage["as_of"].endswith("Z")
    columns = ("image_count", "logical_bytes", "size_bytes", "exclusive_bytes", "shared_bytes")
    told = [
        (each["repository"]["name"], *(each[name] for name in columns))
        for each in usage["repositories"]
    ]
    shared = 1000 + config
    assert told == [
        ("one", 3, 2 * shared + 3, shared + 3, 3, shared),
        ("two", 1, shared + 3, shared + 3, 3, shared),
        ("empty", 0, 0, 0, 0, 0),
    ]
    crn = usage["repositories"][0]["repository"]["crn"]
    assert crn == f"crn:registry:local:{world.account.id}:repository/one"
    assert "repositories" not in await world.usage()
    for query in ("group_by=image", "group_by=", "group_by=a&group_by=a"):
        answer = await world.client.get(f"/v1/storage-usage?{query}")
        refused(answer, 400, "INVALID_INPUT", "group_by")


async def test_slices_do_not_change_sums(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = await world.repository("r")
    images = [await docker.image(*[b"%d" % n * n for n in range(1, end)]) for end in range(2, 8)]
    for digest in images[:4]:
        await docker.delete(digest)
    whole = await world.of_repository("r"), await world.usage()
    monkeypatch.setattr(storage, "_SLICE", 1)
    monkeypatch.setattr(storage, "_TOMBSTONES", 1)
    sliced = await world.of_repository("r"), await world.usage()
    assert sliced[0] == whole[0]
    assert sliced[1] | {"as_of": ""} == whole[1] | {"as_of": ""}


async def test_partners_and_strangers_learn_nothing(world: World) -> None:
    """Whom a repository lets see its images is not told what they share with others."""
    digest = await (await world.repository("r")).image(BASE, tag="v1")
    for name in ("sha256:" + "0" * 64, "v1", "sha256:xyz", "md5:" + "0" * 32):
        answer = await world.client.get(f"{PATH}/{world.ids['r']}/images/{name}/storage")
        refused(answer, 404, "NOT_FOUND")
    partner = await world.install.add_account("partner")
    program = await world.install.add_program(partner, "ci", ALLOW_ALL)
    seen = let("partner", actions=["registry:DescribeImages"])
    await world.install.share(world.ids["r"], world.account, seen)
    client = signed_in(world.install, program)
    one = f"{PATH}/{world.ids['r']}"
    assert (await client.get(f"{one}/images/{digest}")).status_code == 200
    refused(await client.get(f"{one}/images/{digest}/storage"), 404, "NOT_FOUND")
    refused(await client.get(f"{one}/storage"), 404, "NOT_FOUND")
    assert (await client.get("/v1/storage-usage")).json()["storage_usage"]["stored_bytes"] == 0


async def test_an_image_is_measured_in_time_that_grows_with_the_image_alone(
    world: World, sqlite_database: str
) -> None:
    """In steps of the database's machine, which are the same wherever it runs."""

    async def steps(world: World, digest: str) -> int:
        found = await world.install.database.read(find_visible_repository, world.ids["r"])
        assert found is not None
        path = sqlite_database.removeprefix("sqlite:///")
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        with closing(sqlite3.connect(path)) as raw:
            raw.set_progress_handler(count, 1)
            storage.measure_image(SqliteConnection(raw), found, digest, world.install.clock())
        return counted

    docker = await world.repository("r")
    child = await docker.image(BASE, b"c", tag="child")
    index = await docker.index(child, await docker.image(BASE, b"d"))
    other = await world.repository("other")
    counted = []
    for number in range(13):
        await docker.image(BASE, b"r%d" % number, tag=f"v{number}")
        await other.image(BASE, b"o%d" % number)
        if number in (0, 12):  # the first shares the base, and so changes what is to be found
            counted.append([await steps(world, digest) for digest in (child, index)])
    for few, many in zip(*counted, strict=True):
        assert many < few + 12, "it takes a step or more for each image"


async def test_every_number_is_what_a_recount_finds(world: World, database_url: str) -> None:
    """Random images and indexes in three repositories, beside a count over the bare tables."""
    random = Random(0)
    names = ("a", "b", "c")
    dockers = {name: await world.repository(name) for name in names}
    pushed: dict[str, list[str]] = {name: [] for name in names}
    for number in range(18):
        name = random.choice(names)
        docker, there = dockers[name], pushed[name]
        tag = random.choice(("", "", f"t{number}"))
        if len(there) > 2 and random.random() < 0.4:
            children = random.sample(there, random.randint(1, min(3, len(there))))
            made = await docker.index(*children, tag=tag)
        else:
            layers = random.sample(range(1, 9), random.randint(1, 4))
            made = await docker.image(*(b"%d" % each * each**3 for each in layers), tag=tag)
        if made not in there:
            there.append(made)
    with querying(database_url) as query:
        for name in names:
            for digest in pushed[name]:
                found = await world.of_image(name, digest)
                assert found == recounted(query, world.ids[name], digest), (name, digest)
            ids = query("SELECT id FROM manifests WHERE repository_id = ?", world.ids[name])
            inside = {row[0] for row in ids}
            told = await world.of_repository(name)
            expected = totals(query, inside, inside)
            assert (told["size_bytes"], told["exclusive_bytes"]) == expected


def recounted(query: Query, repository_id: str, digest: str) -> dict[str, Any]:
    """Return the record of an image by going over all manifests again and again."""
    ((root,),) = query(
        "SELECT id FROM manifests WHERE repository_id = ? AND digest = ?", repository_id, digest
    )
    edges = query("SELECT parent_id, child_id FROM manifest_children")
    tagged = {row[0] for row in query("SELECT manifest_id FROM tags")}
    tree, gone = {root}, {root}
    for _ in edges:
        tree |= {child for parent, child in edges if parent in tree}
        gone |= {
            child
            for _, child in edges
            if child not in tagged
            and all(parent in gone for parent, each in edges if each == child)
        }
    gone &= tree
    digests = [
        row[1] for row in query("SELECT id, digest FROM manifests") if row[0] in gone - {root}
    ]
    size, exclusive = totals(query, tree, gone)
    return image(size, exclusive, totals(query, tree, {root})[1], unused=digests)


def totals(query: Query, whole: set[str], gone: set[str]) -> tuple[int, int]:
    """Return the bytes that `whole` needs, and those that nothing but `gone` needs."""
    users: dict[tuple[str, int], set[str]] = {}
    for manifest_id, object_id, size in query(
        "SELECT e.manifest_id, l.object_id, l.size FROM manifest_blobs e JOIN repository_blobs l"
        " ON l.repository_id = e.repository_id AND l.digest = e.digest"
    ):
        users.setdefault((object_id, int(size)), set()).add(manifest_id)
    return (
        sum(size for (_, size), ids in users.items() if ids & whole),
        sum(size for (_, size), ids in users.items() if ids <= gone),
    )


@on_both_databases
async def test_damaged_blobs_are_listed_with_the_images_they_hit(world: World) -> None:
    here = await world.repository("here")
    there = await world.repository("there")
    digests = [await here.image(BASE, tag="v1"), await there.image(BASE, b"more", tag="v1")]
    other = await world.install.add_account("other")
    assert (await world.usage())["damaged_blobs"] == []

    def damage_base(tx: Connection) -> None:
        base = linked_object(tx, world.ids["here"], digest_of(BASE))
        assert base is not None
        assert not BLOB_ROWS.mark(tx, other.id, base.id, base.verified_at, ABSENT, 7)  # not theirs
        assert BLOB_ROWS.mark(tx, world.account.id, base.id, base.verified_at, ABSENT, 1_000_000)

    await world.install.database.write(damage_base)
    (found,) = (await world.usage())["damaged_blobs"]
    images = found.pop("images")
    assert found == {
        "digest": digest_of(BASE),
        "size_bytes": len(BASE),
        "damage": "absent",
        "found_at": "1970-01-01T00:00:01.000000Z",
    }
    assert sorted(
        (each["repository"]["name"], each["digest"], each["tags"]) for each in images
    ) == [("here", digests[0], ["v1"]), ("there", digests[1], ["v1"])]
