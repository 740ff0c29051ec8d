"""A damaged blob never eats the good bytes of a push, and every repository has them back.

The bytes are damaged on the disk before each kind of push. Presence and size are looked up by
whatever asks; a bit that flipped is found by fsck, or replaced once its verification is old.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cloudcore.jobs.runs import Run
from cloudcore.serving.asgi import Message
from registry.blobstore.disk.store import FilesystemStore
from registry.gc.fsck import FsckReport, check
from registry.oci.digest import Digest, digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.oci.reference import Name
from registry.services.blobs.reading import note_damage, open_blob, stat_blob
from registry.settings.groups import Delays
from tests.collecting import collect
from tests.databases import on_both_databases
from tests.inprocess import ZERO_COPY, Answer, Client, Registry, open_registry
from tests.integration.damaged import DAMAGES, cut, file_of, flip, marked

BLOB: Final = b"layer" * 100_000
DIGEST: Final = digest_of(BLOB)
REPOSITORIES: Final = ("one", "two")
WEEK: Final = 7 * 24 * 3600

Push = Callable[[Client, str], Awaitable[str]]
"""Pushes as a client does, to a repository that has the blob or the one given, and returns it."""


@pytest.fixture
async def registry(metadata_url: str, store: FilesystemStore) -> AsyncIterator[Registry]:
    """Return a registry where two repositories hold the blob."""
    async with open_registry(metadata_url, store) as registry:
        for repository in REPOSITORIES:
            await upload(registry.client, repository)
        yield registry


def at(repository: str) -> str:
    return f"/v2/dev/{repository}/blobs/{DIGEST}"


async def open_session(client: Client, repository: str, query: str = "") -> Answer:
    return await client.request("POST", f"/v2/dev/{repository}/blobs/uploads/{query}")


async def upload(client: Client, repository: str) -> str:
    """POST, then PUT with the bytes."""
    session = await open_session(client, repository)
    assert session.status == 202
    return await finish(client, repository, session)


async def finish(client: Client, repository: str, session: Answer) -> str:
    target = f"{session.headers['location']}?digest={DIGEST}"
    assert (await client.request("PUT", target, BLOB)).status == 201
    return repository


async def post_patch_put(client: Client, _: str) -> str:
    session = await open_session(client, "one")
    location = session.headers["location"]
    assert (await client.request("PATCH", location, BLOB)).status == 202
    assert (await client.request("PUT", f"{location}?digest={DIGEST}")).status == 201
    return "one"


async def post_put(client: Client, _: str) -> str:
    return await upload(client, "one")


async def single_post(client: Client, _: str) -> str:
    target = f"/v2/dev/one/blobs/uploads/?digest={DIGEST}"
    assert (await client.request("POST", target, BLOB)).status == 201
    return "one"


async def to_another_repository(client: Client, other: str) -> str:
    return await upload(client, other)


async def mount_from(client: Client, other: str) -> str:
    session = await open_session(client, other, f"?mount={DIGEST}&from=dev/one")
    assert session.status == 202
    return await finish(client, other, session)


async def mount_from_anywhere(client: Client, other: str) -> str:
    session = await open_session(client, other, f"?mount={DIGEST}")
    assert session.status == 202
    return await finish(client, other, session)


async def head_then_push(client: Client, _: str) -> str:
    assert (await client.request("HEAD", at("two"))).status == 404
    return await upload(client, "two")


PUSHES: Final[list[Push]] = [post_patch_put, post_put, single_post, to_another_repository]
ASKING: Final[list[Push]] = [mount_from, mount_from_anywhere, head_then_push]
"""Those that send the bytes only when they are told that they are not there."""


def name_of(push: Push) -> str:
    """Return a repository for `push` that no other push makes."""
    return str(getattr(push, "__name__", "")).replace("_", "-")


async def check_healed(registry: Registry, pushed_to: str) -> None:
    for repository in {*REPOSITORIES, pushed_to}:
        for client in (registry.client, Client(registry.app, ZERO_COPY)):
            answer = await client.request("GET", at(repository))
            assert (answer.status, answer.body) == (200, BLOB)
        assert (await registry.client.request("HEAD", at(repository))).status == 200
    assert await marked(registry) == []


async def fsck(registry: Registry, store: FilesystemStore, *, quick: bool = False) -> FsckReport:
    database, clock = registry.ctx.database, registry.ctx.clock
    return await check(database, store, lambda _: None, clock=clock, read_objects=not quick)


async def sweep(registry: Registry, store: FilesystemStore) -> Run:
    """Collect with no delay but a grace for links, which no manifest references here."""
    delays = Delays(gc_grace_seconds=10 * WEEK, gc_condemned_seconds=0, gc_quarantine_seconds=0)
    ctx = replace(registry.ctx, delays=delays)
    return await collect(ctx, store, await registry.account_id())


@pytest.mark.parametrize("damage", ["cut", "grow", "remove"])
async def test_a_push_heals_what_is_gone_or_of_another_size(
    registry: Registry, blobs: Path, damage: str
) -> None:
    for push in PUSHES + ASKING:
        DAMAGES[damage](await file_of(registry, blobs, DIGEST))
        await check_healed(registry, await push(registry.client, name_of(push)))


async def test_a_push_heals_what_was_not_verified_of_late(registry: Registry, blobs: Path) -> None:
    for push in PUSHES:
        flip(await file_of(registry, blobs, DIGEST))
        registry.clock.advance(WEEK)
        await check_healed(registry, await push(registry.client, name_of(push)))


@pytest.mark.parametrize("damage", list(DAMAGES))
async def test_a_push_heals_what_fsck_has_found(
    registry: Registry, store: FilesystemStore, blobs: Path, damage: str
) -> None:
    for push in PUSHES + ASKING:
        DAMAGES[damage](await file_of(registry, blobs, DIGEST))
        assert (await fsck(registry, store)).damaged_count == 1
        for method in ("GET", "HEAD"):
            assert (await registry.client.request(method, at("one"))).status == 404
        await check_healed(registry, await push(registry.client, name_of(push)))
        assert (await fsck(registry, store)).violations == []


@pytest.mark.parametrize("damage", ["cut", "grow", "remove"])
@pytest.mark.parametrize("extensions", [{}, ZERO_COPY])
async def test_a_read_marks_what_it_finds_and_tells_it_once(
    registry: Registry,
    blobs: Path,
    damage: str,
    extensions: dict[str, object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: list[str] = []

    with caplog.at_level(logging.ERROR):
        counting = replace(registry.ctx, on_damage=lambda: found.append(damage))
        registry.app._ctx = counting
        client = Client(registry.app, extensions)
        DAMAGES[damage](await file_of(registry, blobs, DIGEST))
        for span in (None, "bytes=0-9"):
            for repository in REPOSITORIES:
                headers = {"range": span} if span else None
                answer = await client.request("GET", at(repository), headers=headers)
                assert (answer.status, answer.codes) == (404, ["BLOB_UNKNOWN"])
        expected = "absent" if damage == "remove" else "size"
        assert await marked(registry) == [(DIGEST, expected)]
    assert [DIGEST in record.getMessage() for record in caplog.records] == [True]
    assert found == [damage]


async def test_a_file_cut_while_it_is_sent_ends_the_connection_and_is_marked(
    registry: Registry, blobs: Path
) -> None:
    async def never() -> Message:
        raise AssertionError("a GET has no body")

    file = await file_of(registry, blobs, DIGEST)

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.start":
            cut(file)

    sent: list[Message] = []
    scope = {"type": "http", "method": "GET", "raw_path": at("one").encode(), "headers": []}
    with pytest.raises(Exception, match="shorter"):
        await registry.app(scope | {"query_string": b""}, never, send)
    assert sent[-1].get("more_body") is True
    assert await marked(registry) == [(DIGEST, "size")]


async def test_a_new_manifest_needs_whole_blobs(registry: Registry, blobs: Path) -> None:
    def body(name: str) -> bytes:
        descriptor = {"mediaType": "application/x", "digest": DIGEST, "size": len(BLOB)}
        document = {"schemaVersion": 2, "config": descriptor, "layers": []}
        return json.dumps(document | {"annotations": {"name": name}}).encode()

    kind = {"content-type": OCI_MANIFEST}
    ask = registry.client.request
    assert (await ask("PUT", "/v2/dev/one/manifests/v1", body("1"), kind)).status == 201
    cut(await file_of(registry, blobs, DIGEST))
    assert (await ask("HEAD", at("one"))).status == 404
    answer = await ask("PUT", "/v2/dev/one/manifests/v2", body("2"), kind)
    assert (answer.status, answer.codes) == (404, ["MANIFEST_BLOB_UNKNOWN"])
    # What is stored stays as it is: tags move, and it can be deleted.
    assert (await ask("PUT", "/v2/dev/one/manifests/v3", body("1"), kind)).status == 201
    await upload(registry.client, "one")
    assert (await ask("PUT", "/v2/dev/one/manifests/v2", body("2"), kind)).status == 201
    await check_healed(registry, "one")


async def test_a_damaged_blob_can_be_detached(registry: Registry, blobs: Path) -> None:
    cut(await file_of(registry, blobs, DIGEST))
    assert (await registry.client.request("GET", at("one"))).status == 404
    assert (await registry.client.request("DELETE", at("one"))).status == 202


async def test_a_file_that_is_back_is_believed_again(registry: Registry, blobs: Path) -> None:
    """As after a start without the disk of the blobs. Its hash is not: the next push replaces."""

    file = await file_of(registry, blobs, DIGEST)
    file.rename(blobs / "elsewhere")
    assert (await registry.client.request("GET", at("one"))).status == 404
    (blobs / "elsewhere").rename(file)
    await check_healed(registry, "one")
    await upload(registry.client, "one")
    assert await file_of(registry, blobs, DIGEST) != file


async def test_fsck_takes_the_mark_from_what_it_reads_whole(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    file = await file_of(registry, blobs, DIGEST)
    flip(file)
    assert (await fsck(registry, store)).damaged_count == 1
    flip(file)
    assert (await fsck(registry, store, quick=True)).damaged_count == 1
    assert (await registry.client.request("GET", at("one"))).status == 404
    assert (await fsck(registry, store)).violations == []
    await check_healed(registry, "one")
    registry.clock.advance(WEEK - 3600)
    assert (await fsck(registry, store)).violations == []
    registry.clock.advance(3600)
    await upload(registry.client, "one")
    assert await file_of(registry, blobs, DIGEST) == file  # it was verified an hour ago


@on_both_databases
async def test_bytes_that_were_replaced_stay_in_quarantine(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    """So an older database, put back beside these blobs, finds what it knows."""

    file = await file_of(registry, blobs, DIGEST)
    before = file.stat().st_ino
    registry.clock.advance(WEEK)
    await upload(registry.client, "one")
    assert await file_of(registry, blobs, DIGEST) != file
    assert (file.stat().st_ino, file.read_bytes()) == (before, BLOB)
    await check_healed(registry, "one")
    report = await fsck(registry, store)
    assert (report.violations, report.orphans, report.object_count) == ([], [], 1)
    assert (await sweep(registry, store)).counts["removed"] == 1
    assert not file.exists()
    await check_healed(registry, "one")


@on_both_databases
async def test_a_reader_of_an_old_row_opens_the_new_bytes(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    name, digest = Name("dev", "one"), Digest(DIGEST)
    found = await stat_blob(registry.ctx, name, digest)
    stored_id = found.link.stored_id
    async with aclosing(await open_blob(registry.ctx, name, found)) as reading:
        registry.clock.advance(WEEK)
        await upload(registry.client, "one")
        await sweep(registry, store)
        assert b"".join(map(bytes, reading.chunks())) == BLOB
    async with aclosing(await open_blob(registry.ctx, name, found)) as reading:
        assert b"".join(map(bytes, reading.chunks())) == BLOB
    assert await note_damage(registry.ctx, found.link, "absent") is False  # of the old bytes
    assert await marked(registry) == []
    assert not (blobs / "objects" / stored_id[-2:] / stored_id).exists()


@on_both_databases
async def test_a_push_heals_what_was_condemned(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    cut(await file_of(registry, blobs, DIGEST))
    for repository in REPOSITORIES:
        assert (await registry.client.request("DELETE", at(repository))).status == 202
    await upload(registry.client, "one")
    await sweep(registry, store)
    answer = await registry.client.request("GET", at("one"))
    assert (answer.status, answer.body) == (200, BLOB)


@on_both_databases
async def test_many_pushes_that_heal_at_once_agree(
    registry: Registry, store: FilesystemStore, blobs: Path
) -> None:
    cut(await file_of(registry, blobs, DIGEST))
    await asyncio.gather(*(push(registry.client, "three") for push in PUSHES * 3))
    await check_healed(registry, "three")
    await sweep(registry, store)
    await check_healed(registry, "three")
    assert len(list(store.files.list_objects())) == 1
    assert (await fsck(registry, store)).violations == []
