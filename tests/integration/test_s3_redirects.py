"""GET of a plain blob in a bucket sends the client there, if the setting says so; no other does."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from registry.blobstore.opening import open_links
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.bucket_layout import object_key
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.presigned_urls import LIFE_SECONDS, PresignedLinks
from registry.blobstore.s3.store import S3Store
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.oci.digest import Digest, digest_of
from registry.settings.groups import Limits
from registry.settings.settings import Settings
from tests.contract.blob_stores import listed
from tests.inprocess import Answer, Client, Registry, open_registry
from tests.s3_servers import credentials, settings_for

DATA = random.Random(7).randbytes(70_000)


class Redirected:
    """A registry whose blobs are in a bucket, and that redirects to it."""

    def __init__(self, registry: Registry, store: S3Store, links: PresignedLinks) -> None:
        self.links = links
        self.registry = registry
        self.store = store
        app = DataPlane(replace(registry.ctx, links=links), OpenAccess(registry.account))
        self.client = Client(app)

    async def push(self, data: bytes = DATA) -> Digest:
        digest = digest_of(data)
        answer = await self.client.request(
            "POST", f"/v2/dev/app/blobs/uploads/?digest={digest}", data
        )
        assert answer.status == 201, answer.body
        return digest

    async def get(self, digest: Digest, method: str = "GET", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(method, f"/v2/dev/app/blobs/{digest}", headers=named)

    async def object_key(self) -> str:
        (only,) = await listed(self.store.list_objects())
        return object_key(only.object_id)


@asynccontextmanager
async def redirecting(
    url: str, *, seals: bool = False, limits: Limits | None = None
) -> AsyncIterator[Redirected]:
    with credentials():
        used = settings_for("seaweedfs", store_s3_redirects="on")
        with (
            closing(S3Store(S3Files(Bucket(used)))) as store,
            open_links(Settings(data=Path("here"), store=used), store) as links,
        ):
            async with open_registry(url, store, seals=seals, limits=limits) as registry:
                assert isinstance(links, PresignedLinks)
                yield Redirected(registry, store, links)


async def test_a_plain_blob_is_read_where_the_redirect_leads(
    sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "registry")
    async with redirecting(sqlite_database) as site:
        digest = await site.push()
        answer = await site.get(digest)
        assert (answer.status, answer.body) == (307, b"")
        assert answer.headers["docker-content-digest"] == digest
        assert answer.headers["cache-control"] == "no-store"
        url = answer.headers["location"]
        async with httpx.AsyncClient() as http:
            whole = await http.get(url)
            assert (whole.status_code, whole.content) == (200, DATA)
            assert whole.headers["content-type"] == "application/octet-stream"
            part = await http.get(url, headers={"Range": "bytes=5-9"})
            assert (part.status_code, part.content) == (206, DATA[5:10])
            changed = await http.get(url.replace("X-Amz-Expires=300", "X-Amz-Expires=9999"))
            assert changed.status_code == 403
        assert f"X-Amz-Expires={LIFE_SECONDS}" in url
        assert "X-Amz-" not in caplog.text
        assert (await site.get(digest, range="bytes=5-9")).status == 307
        counted = site.registry.ctx.pulls.cache.take().served_bytes
        assert list(counted.values()) == [len(DATA) + 5]


async def test_what_the_bucket_cannot_answer_is_answered_here(sqlite_database: str) -> None:
    async with redirecting(sqlite_database) as site:
        digest = await site.push()
        head = await site.get(digest, "HEAD")
        assert (head.status, head.headers["content-length"]) == (200, str(len(DATA)))
        assert (await site.get(digest, if_none_match=f'"{digest}"')).status == 304
        assert (await site.get(digest, range=f"bytes={len(DATA)}-")).status == 416
        for headers in (
            {"if_match": f'"{digest}"'},
            {"range": "bytes=0-1", "if_range": f'"{digest}"'},
            {"range": "bytes=0-1,7-8"},
        ):
            assert (await site.get(digest, **headers)).status in (200, 206)
        without = site.registry.client
        assert (await without.request("GET", f"/v2/dev/app/blobs/{digest}")).body == DATA
        site.store.files.bucket.delete_all([await site.object_key()])
        answer = await site.get(digest)
        assert (answer.status, answer.codes) == (404, ["BLOB_UNKNOWN"]), "it is gone"
        await site.push()
        assert (await site.get(digest)).status == 307


async def test_sealed_and_inline_blobs_are_not_redirected(sqlite_database: str) -> None:
    async with redirecting(
        sqlite_database, seals=True, limits=Limits(inline_max_bytes=100)
    ) as site:
        for data in (DATA, b"small"):
            answer = await site.get(await site.push(data))
            assert (answer.status, answer.body) == (200, data)


async def test_a_url_is_given_for_half_of_its_life_and_names_the_public_endpoint() -> None:
    now = 100.0
    with credentials():
        settings = settings_for(
            "moto", store_s3_redirects="on", store_s3_public_endpoint="https://s3.example.com"
        )
        with (
            closing(S3Store(S3Files(Bucket(settings)))) as store,
            closing(PresignedLinks(store, lambda: now)) as links,
        ):
            object_id = "0197f0aa-0000-7000-8000-0000000000ab"
            store.files.bucket.put(object_key(object_id), b"bytes")
            assert links.known(object_id) is None
            url = await links.link(object_id, 5)
            place = f"/{settings.store_s3_bucket}/{settings.key_prefix}{object_key(object_id)}?"
            assert url.startswith(f"https://s3.example.com{place}")
            now += LIFE_SECONDS / 2 - 1
            assert links.known(object_id) == url
            now += 2
            assert links.known(object_id) is None
