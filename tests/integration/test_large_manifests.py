"""Manifests that refer to much: what they cost the database, and how long the answer gets."""

from __future__ import annotations

import gc
import json
import sqlite3
import threading
from typing import Any, Final

import pytest

from cloudcore.db.base import Row
from cloudcore.db.sqlite_connection import SqliteConnection
from cloudcore.db.statement import Statement
from cloudcore.serving.asgi import Message, Scope
from registry.errors import ManifestBlobUnknown
from registry.metadata.images.manifests import SMALL_BYTES
from registry.oci.digest import digest_of
from registry.oci.manifest import MAX_DESCRIPTORS
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from tests.inprocess import Registry, open_registry
from tests.integration.counting import open_counting
from tests.integration.pushing import World
from tests.memory_store import MemoryStore
from tests.waiting import until_so

APP: Final = "/v2/dev/app"
BLOBS: Final = [b"%d" % number for number in range(25)]


def descriptors(*blobs: bytes, algorithm: str = "sha256", **fields: object) -> list[dict[str, Any]]:
    return [
        {"mediaType": "a/b", "digest": digest_of(each, algorithm), "size": len(each), **fields}
        for each in blobs
    ]


def image(layers: list[dict[str, Any]]) -> bytes:
    (config,) = descriptors(BLOBS[0])
    return json.dumps({"schemaVersion": 2, "config": config, "layers": layers}).encode()


async def push_blobs(registry: Registry, algorithm: str = "sha256") -> None:
    for each in BLOBS:
        path = f"{APP}/blobs/uploads/?digest={digest_of(each, algorithm)}"
        assert (await registry.client.request("POST", path, each)).status == 201


async def put_raw(registry: Registry, body: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    """PUT a manifest, and return the answer's headers one by one."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    scope: Scope = {
        "type": "http",
        "method": "PUT",
        "raw_path": f"{APP}/manifests/v1".encode(),
        "query_string": b"",
        "headers": [(b"content-type", OCI_MANIFEST.encode())],
    }
    await registry.app(scope, receive, send)
    return messages[0]["status"], messages[0]["headers"]


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
async def test_many_wrong_sizes_are_counted_in_the_last_warning(
    sqlite_database: str, algorithm: str
) -> None:
    async with open_registry(sqlite_database, MemoryStore()) as registry:
        await push_blobs(registry)
        await push_blobs(registry, algorithm)
        layers = descriptors(*BLOBS[1:], algorithm=algorithm, size=99)
        status, headers = await put_raw(registry, image(layers))
        warnings = [value for name, value in headers if name == b"warning"]
        assert status == 201
        assert len(warnings) == 21
        assert b"24 blobs in all" in warnings[-1]
        assert sum(map(len, warnings)) <= 4096


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "blake3"])
async def test_a_manifest_takes_as_many_statements_however_much_it_refers_to(
    sqlite_database: str, algorithm: str
) -> None:
    """Each is a turn of the one writer; by another digest than sha256 too."""
    async with open_counting(sqlite_database) as (registry, counted):
        await push_blobs(registry)
        await push_blobs(registry, algorithm)
        path, kind = f"{APP}/manifests/v1", {"content-type": OCI_MANIFEST}
        taken = []
        for blobs in (BLOBS[1:3], BLOBS[1:]):
            counted.start()
            body = image(descriptors(*blobs, algorithm=algorithm))
            assert (await registry.client.request("PUT", path, body, kind)).status == 201
            taken.append(len(counted.seen))
        assert taken[1] <= taken[0] + 3  # the second moves the tag
        counted.start()
        absent = [b"absent %d" % number for number in range(MAX_DESCRIPTORS - 1)]
        body = image(descriptors(*absent, algorithm=algorithm))
        answer = await registry.client.request("PUT", path, body, kind)
        assert (answer.status, len(answer.codes)) == (404, 101)
        assert len(answer.body) < 40_000
        assert len(counted.seen) <= taken[0]
        index = {"schemaVersion": 2, "manifests": descriptors(*absent, algorithm=algorithm)}
        body = json.dumps(index).encode()
        answer = await registry.client.request("PUT", path, body, {"content-type": OCI_INDEX})
        assert answer.json()["errors"][-1]["detail"] == {"count": MAX_DESCRIPTORS - 1}
        assert len(answer.body) < 40_000


async def test_nothing_of_a_refused_manifest_is_kept_until_a_collection(database_url: str) -> None:
    """An error in a circle with what it tells of keeps thousands of digests, for each request."""

    def is_kept() -> bool:
        return any(type(each) is ManifestBlobUnknown for each in gc.get_objects())

    async with open_registry(database_url, MemoryStore()) as registry:
        await push_blobs(registry)
        path, kind = f"{APP}/manifests/v1", {"content-type": OCI_MANIFEST}
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                body = image(descriptors(b"absent"))
                assert (await registry.client.request("PUT", path, body, kind)).status == 404
            # What the thread of the database has of it goes a moment later.
            await until_so(lambda: not is_kept())
        finally:
            gc.enable()


async def test_neither_a_large_manifest_nor_what_lies_behind_it_is_read_on_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image may have thousands of tags, and a manifest megabytes: reading them takes long."""
    annotations = {"padding": "x" * 200_000}
    image = await world.push_image("a layer", "v1", annotations=annotations)
    index = await world.push_index([image | {"annotations": annotations}], "all")
    read_here: list[str] = []
    run, here = SqliteConnection._run, threading.current_thread()

    def noted(
        connection: SqliteConnection, statement: Statement, parameters: dict[str, object]
    ) -> sqlite3.Cursor:
        cursor = run(connection, statement, parameters)
        if threading.current_thread() is here:
            cursor.row_factory = lambda _, row: kept(statement.sqlite, row)
            if "manifests.pushed_at" in statement.sqlite:
                read_here.append(statement.sqlite)
        return cursor

    def kept(sql: str, row: Row) -> Row:
        if any(isinstance(each, bytes) and len(each) > SMALL_BYTES for each in row):
            read_here.append(sql)
        return row

    monkeypatch.setattr(SqliteConnection, "_run", noted)
    for reference in ("v1", image["digest"], "all"):
        answer = await world.docker.get(f"/v2/{world.name}/manifests/{reference}")
        assert answer.status_code == 200
        assert len(answer.content) > 200_000
    for path in (
        f"{image['digest']}/manifest",
        f"{image['digest']}/attachment?layer=0",
        f"{index['digest']}/manifest",
    ):
        assert (await world.control.get(f"{world.images}/{path}")).status_code == 200
    await world.get(f"/images/{image['digest']}")
    await world.get(f"/images/{image['digest']}/referrers")
    await world.get(f"/images/{index['digest']}/deletion-preview")
    await world.get("/images", include="platforms")
    assert read_here == []
