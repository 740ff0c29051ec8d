"""A manifest damaged in the database is not given out, and any push of it heals it everywhere."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Final

import pytest
from sqlalchemy import bindparam

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.metadata.tables import manifest_bodies
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from tests.inprocess import Client, Registry, open_registry
from tests.integration.counting import CountingDatabase
from tests.integration.pushing import World
from tests.memory_store import MemoryStore

BLOB: Final = b"layer"
DESCRIPTOR: Final = {"mediaType": "application/x", "digest": digest_of(BLOB), "size": len(BLOB)}
KIND: Final = {"content-type": OCI_MANIFEST}

_DAMAGE: Final = Statement(
    manifest_bodies.update()
    .where(manifest_bodies.c.digest == bindparam("of"))
    .values(body=bindparam("bytes"))
)


def manifest(padding: int = 0) -> bytes:
    """Return a manifest of at least so many bytes."""
    document = {"schemaVersion": 2, "config": DESCRIPTOR, "layers": []}
    return json.dumps(document | {"annotations": {"padding": "x" * padding}}).encode()


def _damage(tx: Connection, digest: str, body: bytes) -> None:
    assert tx.execute(_DAMAGE, of=digest, bytes=body) == 1


def levels_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the levels of what was logged, without the client's lines on its requests."""
    return [record.levelname for record in caplog.records if record.levelno > logging.INFO]


async def damage(registry: Registry, body: bytes) -> None:
    """Change one letter of a stored manifest."""
    wrong = body.replace(b"schemaVersion", b"schemaversion")
    await registry.ctx.database.write(_damage, digest_of(body), wrong)


async def push(client: Client, repository: str, reference: str, body: bytes) -> int:
    """Push a manifest with its blob, as a client that asks for nothing first."""
    blob = f"/v2/dev/{repository}/blobs/uploads/?digest={digest_of(BLOB)}"
    assert (await client.request("POST", blob, BLOB)).status == 201
    target = f"/v2/dev/{repository}/manifests/{reference}"
    return (await client.request("PUT", target, body, KIND)).status


@asynccontextmanager
async def open_pushed(url: str, body: bytes) -> AsyncIterator[Registry]:
    """Open a registry where two repositories have the manifest as the tag ``v1``."""
    async with open_registry(url, MemoryStore()) as registry:
        for repository in ("one", "two"):
            assert await push(registry.client, repository, "v1", body) == 201
        yield registry


@pytest.mark.parametrize("padding", [0, 100_000])
async def test_a_push_heals_the_manifest_in_every_repository(
    database_url: str, padding: int
) -> None:
    body = manifest(padding)
    digest = digest_of(body)
    async with open_pushed(database_url, body) as registry:
        for repository, reference in (
            ("one", "v1"),
            ("one", "v2"),
            ("one", digest),
            ("three", "v1"),
            ("four", digest),
        ):
            await damage(registry, body)
            assert await push(registry.client, repository, reference, body) == 201
            for other in {"one", "two", repository}:
                answer = await registry.client.request("GET", f"/v2/dev/{other}/manifests/{digest}")
                assert (answer.status, answer.body) == (200, body)


@pytest.mark.parametrize("padding", [0, 100_000])
async def test_wrong_bytes_are_never_given_out(
    sqlite_database: str, caplog: pytest.LogCaptureFixture, padding: int
) -> None:
    """Absent to who asks, so that a client which asks before it pushes sends it again."""
    body, found = manifest(padding), []

    with caplog.at_level(logging.WARNING):
        async with open_pushed(sqlite_database, body) as registry:
            ctx = replace(registry.ctx, on_damage=lambda: found.append(True))
            client = Client(DataPlane(ctx, OpenAccess(registry.account)))
            await damage(registry, body)
            for method in ("GET", "HEAD"):
                for reference in ("v1", digest_of(body), digest_of(body, "sha512")):
                    target = f"/v2/dev/one/manifests/{reference}"
                    answer = await client.request(method, target)
                    assert answer.status == 404
                    assert method == "HEAD" or answer.codes == ["MANIFEST_UNKNOWN"]
            assert await push(client, "one", "v1", body) == 201
            assert (await client.request("GET", "/v2/dev/two/manifests/v1")).body == body
    assert levels_of(caplog) == ["ERROR", "WARNING"]
    assert found == [True]


async def test_both_planes_report_one_damaged_manifest_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    digest = (await world.push(await world.image_document("one")))["digest"]
    await world.install.database.write(_damage, digest, b"{}")

    with caplog.at_level(logging.WARNING):
        shown = await world.control.get(f"{world.images}/{digest}/manifest")
        assert (shown.status_code, shown.json()["error"]["code"]) == (404, "NOT_FOUND")
        assert levels_of(caplog) == ["ERROR"]
        assert f"manifest {digest} in {world.name} is damaged" in caplog.text
        pulled = await world.docker.get(f"/v2/{world.name}/manifests/{digest}")
        assert pulled.status_code == 404
    assert levels_of(caplog) == ["ERROR"]


async def test_a_push_of_what_is_whole_rewrites_nothing(database_url: str) -> None:
    body = manifest()

    counting: list[CountingDatabase] = []

    def around(database: Database) -> Database:
        counting.append(CountingDatabase(database))
        return counting[0]

    async with open_registry(database_url, MemoryStore(), around=around) as registry:
        for repository in ("one", "one", "two"):
            assert await push(registry.client, repository, "v1", body) == 201
            texts = [each.sqlite for each in counting[0].seen]
            assert not any(text.startswith("UPDATE manifest_bodies") for text in texts)
            assert sum("manifest_bodies" in text for text in texts) <= 2
            counting[0].start()


async def test_a_lost_body_is_had_again(sqlite_database: str) -> None:
    """As after rows were saved from a damaged database: no key says that it is missing."""
    body = manifest()

    async with open_pushed(sqlite_database, body) as registry:
        with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
            raw.execute("DELETE FROM manifest_bodies")
            raw.commit()
        assert await push(registry.client, "two", "v1", body) == 201
        answer = await registry.client.request("GET", "/v2/dev/one/manifests/v1")
        assert answer.body == body
