"""Blobs are sealed under the key of their repository, and read through it, on both databases."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from sqlalchemy import bindparam

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.keyring import Keyring
from cloudcore.kms.key import Key
from cloudcore.kms.providers import EmbeddedProvider
from cloudcore.quotas.limits import QuotaUse, put_limit
from registry.metadata.blobs.inline import read_body
from registry.metadata.quotas import COUNTED_BYTES, find_miscount
from registry.metadata.tables import inline_bytes, uploads
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.quotas import BLOB_BYTES
from registry.settings.groups import Limits
from tests.databases import on_both_databases
from tests.integration.sealed_world import SealedWorld, error_of, make_sealed_world
from tests.memory_store import MemoryStore
from tests.tenants import open_install

DATA = b"a layer of some hundred bytes. " * 100
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CHANGE = Statement(
    inline_bytes.update()
    .where(inline_bytes.c.stored_id == bindparam("of"))
    .values(body=bindparam("changed"))
)
_SPOIL = Statement(uploads.update().values(wrapped_data_key=bindparam("wrapped")))
DISABLED = {"reason": "kms_key_disabled"}


@pytest.fixture(params=[0, 4096], ids=["in the store", "inline"])
async def world(metadata_url: str, request: pytest.FixtureRequest) -> AsyncIterator[SealedWorld]:
    limits = Limits(inline_max_bytes=request.param)
    async with open_install(metadata_url, limits=limits) as install, install.connect() as docker:
        yield await make_sealed_world(install, docker)


async def stored(world: SealedWorld, stored_id: str) -> bytes:
    if world.install.ctx.limits.inline_max_bytes:
        body = await world.install.database.read(read_body, stored_id)
        assert body is not None
        return body
    return _files(world)[stored_id]


async def change(world: SealedWorld, stored_id: str, stored_bytes: bytes) -> None:
    if world.install.ctx.limits.inline_max_bytes:
        of = {"of": stored_id, "changed": stored_bytes}
        await world.install.database.write(lambda tx: tx.execute(_CHANGE, **of))
    else:
        _files(world)[stored_id] = stored_bytes


def spoil_sessions(tx: Connection, wrapped: bytes) -> None:
    assert tx.execute(_SPOIL, wrapped=wrapped) == 1


def _files(world: SealedWorld) -> dict[str, bytes]:
    store = world.install.ctx.reader
    assert isinstance(store, MemoryStore)
    return store.files.objects


async def test_a_pushed_blob_is_sealed_under_the_platform_key(world: SealedWorld) -> None:
    assert (await world.push("red", DATA)).status_code == 201
    ((object_id, stored_id, encoding, *_),) = await world.objects(DATA)
    assert encoding == "sealed"
    key = await world.platform_key()
    assert list(await world.wraps(object_id)) == [key.id]
    assert await world.link("red", DATA) == (object_id, key.id)
    assert DATA[:30] not in await stored(world, stored_id)
    answer = await world.pull("red", DATA)
    assert (answer.status_code, answer.content) == (200, DATA)
    part = await world.pull("red", DATA, Range="bytes=100-199")
    assert (part.status_code, part.content) == (206, DATA[100:200])
    assert (await world.pull("red", DATA, "HEAD")).headers["content-length"] == str(len(DATA))


@on_both_databases
@pytest.mark.parametrize("is_mount", [True, False])
async def test_known_bytes_are_wrapped_under_the_key_of_a_second_repository(
    world: SealedWorld, *, is_mount: bool
) -> None:
    await world.push("red", DATA)
    key = await world.make_bound_key("blue", "blue")
    known = world.mount("blue", DATA, "red") if is_mount else world.push("blue", DATA)
    assert (await known).status_code == 201
    ((object_id, *_),) = await world.objects(DATA)
    platform = await world.platform_key()
    assert set(await world.wraps(object_id)) == {platform.id, key.id}
    assert await world.link("blue", DATA) == (object_id, key.id)
    assert (await world.pull("blue", DATA)).content == DATA


@on_both_databases
async def test_a_push_after_a_new_binding_moves_the_link(world: SealedWorld) -> None:
    await world.push("red", DATA)
    before = await world.link("red", DATA)
    key = await world.make_bound_key("mine", "red")
    assert (await world.pull("red", DATA)).content == DATA  # still through the old one
    await world.push("red", DATA)
    assert await world.link("red", DATA) == (before[0], key.id)
    assert set(await world.wraps(before[0])) == {key.id}  # nobody needs the other
    assert (await world.pull("red", DATA)).content == DATA


@pytest.mark.parametrize("is_pending", [False, True])
async def test_a_key_that_is_disabled_refuses_use_until_it_is_enabled(
    world: SealedWorld,
    is_pending: bool,
) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    location = (await world.begin("red")).headers["location"]
    await (world.schedule_deletion(key) if is_pending else world.disable(key))
    probed = await world.pull("red", DATA, "HEAD")
    assert probed.status_code == 403
    (words,) = re.findall('^299 - "(.+)"$', probed.headers["warning"])
    path = f"{location}?digest=sha256:{'0' * 64}"
    for refused, told in (
        (await world.pull("red", DATA), words),
        (await world.push("red", b"other"), "enable it, or bind the repository to another"),
        (await world.begin("red"), ""),
        (await world.mount("red", DATA, "red"), ""),
        (await world.docker.patch(location, content=b"x"), ""),
        (await world.docker.put(path, content=b"x"), ""),
    ):
        assert error_of(refused) == (403, "DENIED", DISABLED)
        assert told in refused.text
    if not is_pending:
        await world.enable(key)
        assert (await world.pull("red", DATA)).content == DATA
        assert (await world.docker.patch(location, content=b"x")).status_code == 202


async def test_a_deleted_key_leaves_nothing_readable_until_a_push(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await world.delete(key)
    refused = await world.pull("red", DATA)
    status, code, detail = error_of(refused)
    assert (status, code) == (404, "BLOB_UNKNOWN")
    assert "push the blob again" in refused.text
    assert isinstance(detail, dict)
    assert detail["reason"] == "kms_key_not_found"
    gone = (404, "DENIED", {"reason": "kms_key_not_found"})
    refused = await world.push("red", DATA)
    assert error_of(refused) == error_of(await world.begin("red")) == gone
    assert "bind the repository to another" in refused.text
    await world.bind("red", None)
    assert (await world.push("red", DATA)).status_code == 201
    assert (await world.pull("red", DATA)).content == DATA


@on_both_databases
async def test_a_key_that_nobody_can_use_fails_no_push_of_others(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await world.disable(key)
    assert (await world.mount("blue", DATA, "red")).status_code == 202  # upload it
    assert (await world.push("blue", DATA)).status_code == 201
    old, new = await world.objects(DATA)
    assert [old[3], new[3]] == [False, True]
    assert (await world.link("red", DATA))[0] == old[0]
    assert (await world.link("blue", DATA))[0] == new[0]
    assert (await world.pull("blue", DATA)).content == DATA
    await world.enable(key)
    assert (await world.pull("red", DATA)).content == DATA
    await world.push("red", DATA)  # moves its link to the current object
    assert (await world.link("red", DATA)) == (new[0], key.id)
    states = {each[0]: each[4] for each in await world.objects(DATA)}
    assert states == {old[0]: "condemned", new[0]: "live"}
    assert (await world.pull("red", DATA)).content == DATA


@pytest.mark.parametrize("end", [SealedWorld.disable, SealedWorld.delete])
@pytest.mark.parametrize("names_source", [True, False])
async def test_what_a_key_has_shut_is_no_source_for_a_mount(
    world: SealedWorld,
    end: Callable[[SealedWorld, Key], Awaitable[None]],
    names_source: bool,
) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    await world.push("blue", DATA)  # the same object, under the platform key
    await world.bind("red", None)
    await end(world, key)
    assert (await world.pull("red", DATA)).status_code in (403, 404)
    assert (await world.mount("red", DATA, "red")).status_code == 202
    assert (await world.pull("red", DATA)).status_code in (403, 404)
    query = f"mount={digest_of(DATA)}{'&from=acme/blue' if names_source else ''}"
    mounted = await world.docker.post(f"{world.blobs('red')}/uploads/?{query}")
    assert mounted.status_code == 201  # from a repository whose key can be used
    assert (await world.pull("red", DATA)).content == DATA


async def test_a_broken_wrap_is_told_once_and_healed_by_a_push(
    world: SealedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    key = await world.platform_key()
    await world.push("red", DATA)
    object_id, _ = await world.link("red", DATA)
    wrapped = (await world.wraps(object_id))[key.id]
    for spoiled in (wrapped[:-1] + bytes([wrapped[-1] ^ 1]), b"", wrapped + b"x"):
        await world.spoil(object_id, key, spoiled)
        caplog.clear()
        for _ in range(2):
            assert error_of(await world.pull("red", DATA))[:2] == (404, "BLOB_UNKNOWN")
        assert (await world.pull("red", DATA, "HEAD")).status_code == 404
        assert (await world.push("red", DATA)).status_code == 201
        assert (await world.pull("red", DATA)).content == DATA
        assert sum(each.levelno >= logging.ERROR for each in caplog.records) <= 1
        object_id, _ = await world.link("red", DATA)


async def test_a_broken_wrap_is_healed_through_the_wrap_of_another_key(world: SealedWorld) -> None:
    await world.push("red", DATA)
    await world.make_bound_key("blue", "blue")
    await world.mount("blue", DATA, "red")
    ((object_id, *_),) = before = await world.objects(DATA)
    await world.spoil(object_id, await world.platform_key(), b"")
    assert (await world.push("red", DATA)).status_code == 201
    assert await world.objects(DATA) == before
    for repository in ("red", "blue"):
        assert (await world.pull(repository, DATA)).content == DATA


async def test_a_wrap_of_another_data_key_is_damage_that_a_push_heals(world: SealedWorld) -> None:
    await world.push("red", DATA)
    ((object_id, stored_id, *_),) = await world.objects(DATA)
    keys, platform = world.install.ctx.data_keys, await world.platform_key()
    assert keys is not None
    other = keys.new(world.account.id)
    wrapped = await keys.wrap(world.account.id, platform.id, stored_id, other)
    await world.spoil(object_id, platform, wrapped)
    assert (await world.push("blue", DATA)).status_code == 201
    ((same, other_id, *_),) = await world.objects(DATA)
    assert same == object_id
    assert other_id != stored_id
    for repository in ("red", "blue"):
        assert (await world.pull(repository, DATA)).content == DATA


async def test_a_mount_whose_data_key_cannot_be_opened_now_wants_the_bytes(
    world: SealedWorld,
) -> None:
    await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    away = world.with_providers(EmbeddedProvider(Keyring(b"another root key" * 2)))
    async with world.served_by(data_keys=away) as apart:
        assert (await apart.mount("blue", DATA, "red")).status_code == 202
        assert (await apart.pull("red", DATA)).status_code == 503
    assert (await world.pull("blue", DATA)).status_code == 404
    assert (await world.mount("blue", DATA, "red")).status_code == 201


@on_both_databases
async def test_changed_bytes_are_damaged_and_healed_by_a_push(world: SealedWorld) -> None:
    await world.push("red", DATA)
    key = await world.make_bound_key("blue", "blue")
    await world.mount("blue", DATA, "red")
    for at in (20, 70, 90, -1):
        ((object_id, stored_id, *_),) = await world.objects(DATA)
        changed = bytearray(await stored(world, stored_id))
        changed[at] ^= 1
        await change(world, stored_id, bytes(changed))
        for _ in range(2):
            assert (await world.pull("red", DATA)).status_code == 404
        assert (await world.pull("blue", DATA, "HEAD")).status_code == 404
        assert (await world.push("red", DATA)).status_code == 201
        ((same, other_id, *_),) = await world.objects(DATA)
        assert same == object_id
        assert other_id != stored_id
        assert (await world.link("blue", DATA))[1] == key.id
        for repository in ("red", "blue"):
            assert (await world.pull(repository, DATA)).content == DATA


@on_both_databases
async def test_a_replacement_that_a_key_forbids_retires_the_object(world: SealedWorld) -> None:
    database, account_id = world.install.database, world.account.id
    await database.write(put_limit, account_id, BLOB_BYTES.name, 2 * len(DATA), 1)
    await world.push("red", DATA)
    key = await world.make_bound_key("blue", "blue")
    await world.mount("blue", DATA, "red")
    await world.disable(key)
    await world.age(DATA)
    assert (await world.push("red", DATA)).status_code == 201
    old, new = await world.objects(DATA)
    # It is stored twice, and counts so.
    use = await database.read(COUNTED_BYTES.read, account_id)
    assert use == QuotaUse(2 * len(DATA), 2 * len(DATA), last_level=100)
    assert await database.read(find_miscount, account_id) is None
    assert (await world.link("blue", DATA)) == (old[0], key.id)
    assert (await world.link("red", DATA))[0] == new[0]
    assert (await world.pull("red", DATA)).content == DATA
    await world.enable(key)
    assert (await world.pull("blue", DATA)).content == DATA


@pytest.mark.parametrize("size", [3_000_000, 3000])
async def test_a_session_is_sealed_and_resumed(world: SealedWorld, size: int) -> None:
    data = os.urandom(size)
    location = (await world.begin("red")).headers["location"]
    step = size * 7 // 30
    for start in range(0, len(data), step):
        part = data[start : start + step]
        answer = await world.docker.patch(location, content=part)
        assert answer.status_code == 202, answer.text
        location = answer.headers["location"]
        await world.bind("red", await world.make_key(f"key-{start}"))
    answer = await world.docker.put(f"{location}?digest={digest_of(data)}")
    assert answer.status_code == 201, answer.text
    ((object_id, _, encoding, *_),) = await world.objects(data)
    assert encoding == "sealed"
    assert list(await world.wraps(object_id)) == [(await world.link("red", data))[1]]
    assert (await world.pull("red", data)).content == data
    first, last = size * 35 // 100, size * 7 // 10  # of large bytes, around the ends of frames
    ranged = await world.pull("red", data, Range=f"bytes={first}-{last}")
    assert ranged.content == data[first : last + 1]


async def test_a_session_whose_wrap_does_not_open_has_lost_its_bytes(world: SealedWorld) -> None:
    for method, wrapped in (("PATCH", b""), ("PUT", b"no wrap")):
        location = (await world.begin("red")).headers["location"]
        assert (await world.docker.patch(location, content=DATA)).status_code == 202
        await world.database.write(spoil_sessions, wrapped)
        path = f"{location}?digest={digest_of(DATA + b'more')}"
        for _ in range(2):
            answer = await world.docker.request(method, path, content=b"more")
            assert error_of(answer)[:2] == (404, "BLOB_UPLOAD_UNKNOWN")
    assert await world.objects(DATA + b"more") == []


async def test_a_manifest_needs_keys_that_are_not_deleted(world: SealedWorld) -> None:
    key = await world.make_bound_key("mine", "red")
    await world.push("red", DATA)
    layer = {"mediaType": OCI_LAYER, "digest": str(digest_of(DATA)), "size": len(DATA)}
    config = layer | {"mediaType": "application/vnd.oci.image.config.v1+json"}

    async def put(tag: str) -> int:
        document = {"schemaVersion": 2, "config": config, "layers": [layer], "annotations": {}}
        document["annotations"] = {"tag": tag}
        path = f"/v2/acme/red/manifests/{tag}"
        answer = await world.docker.put(
            path, content=json.dumps(document), headers={"Content-Type": OCI_MANIFEST}
        )
        return answer.status_code

    assert await put("enabled") == 201
    await world.disable(key)
    assert await put("disabled") == 201
    await world.delete(key)
    assert await put("deleted") == 404
    for tag in ("enabled", "disabled"):  # manifests need no key
        assert (await world.docker.get(f"/v2/acme/red/manifests/{tag}")).status_code == 200


@on_both_databases
async def test_a_pull_reads_once_and_a_push_writes_once(world: SealedWorld) -> None:
    await world.push("red", b"warm")
    await world.pull("red", b"warm")
    async with world.counting() as (counting, counted):
        assert (await counting.push("red", DATA)).status_code == 201
        is_inline = world.install.ctx.limits.inline_max_bytes > 0
        assert counted.calls == ((0, 1) if is_inline else (1, 1))
        counted.start()
        assert (await counting.pull("red", DATA)).content == DATA
        assert counted.calls == (1, 0)
