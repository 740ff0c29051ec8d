"""The data plane in process: what its handlers say beyond what the model of a registry covers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from registry.blobstore.base import OpenObject
from registry.blobstore.disk.store import FilesystemStore
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.images.referrers import MAX_BYTES
from registry.settings.groups import Limits
from tests.inprocess import Client, Registry, hang_up, open_registry
from tests.memory_store import MemoryStore
from tests.recount import querying, upload_ids

APP: Final = "/v2/dev/app"
DATA: Final = bytes(range(256)) * 2000
DIGEST: Final = digest_of(DATA)
DESCRIPTOR: Final = {"mediaType": "application/x", "digest": DIGEST, "size": len(DATA)}
IMAGE: Final = json.dumps({"schemaVersion": 2, "config": DESCRIPTOR, "layers": []}).encode()
KIND: Final = {"content-type": OCI_MANIFEST}


@pytest.fixture
async def registry(metadata_url: str) -> AsyncIterator[Registry]:
    """Return a registry whose bytes are in memory."""
    async with open_registry(metadata_url, MemoryStore()) as registry:
        yield registry


async def push(registry: Registry, data: bytes = DATA) -> None:
    path = f"{APP}/blobs/uploads/?digest={digest_of(data)}"
    assert (await registry.client.request("POST", path, data)).status == 201


async def put(registry: Registry, reference: str, **headers: str) -> int:
    kind = KIND | {name.replace("_", "-"): value for name, value in headers.items()}
    path = f"{APP}/manifests/{reference}"
    return (await registry.client.request("PUT", path, IMAGE, kind)).status


async def test_a_bug_is_logged_and_told_without_detail(
    sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(MemoryStore):
        async def open(self, *_: object) -> OpenObject:
            raise RuntimeError("a bug")

    async with open_registry(sqlite_database, Broken()) as registry:
        await push(registry)
        client = Client(registry.app, expects_bugs=True)
        answer = await client.request("GET", f"{APP}/blobs/{DIGEST}")
        assert (answer.status, answer.codes) == (500, ["UNKNOWN"])
        (record,) = (record for record in caplog.records if record.exc_info)
        assert record.__dict__["request_id"] == answer.headers["x-request-id"]


async def test_a_whole_blob_lies_where_its_range_says(registry: Registry) -> None:
    for query in ("digest={0}", "mount={0}&digest={0}"):
        data = DATA + query[:1].encode()  # so that the account has no such blob yet
        digest = digest_of(data)
        path = f"{APP}/blobs/uploads/?{query.format(digest)}"
        for span, status, code in (
            (f"1-{len(data)}", 416, "BLOB_UPLOAD_INVALID"),
            (f"0-{len(data)}", 400, "SIZE_INVALID"),
            (f"0-{len(data) - 2}", 400, "SIZE_INVALID"),
        ):
            for sent in (data, [data]):  # with a declared length, and without
                answer = await registry.client.request("POST", path, sent, {"Content-Range": span})
                assert (answer.status, answer.codes) == (status, [code])
        blob = f"{APP}/blobs/{digest}"
        assert (await registry.client.request("HEAD", blob)).status == 404
        whole = {"Content-Range": f"0-{len(data) - 1}"}
        assert (await registry.client.request("POST", path, [data], whole)).status == 201
        assert (await registry.client.request("GET", blob)).body == data


async def test_a_manifest_cut_short_is_not_stored(registry: Registry) -> None:
    await push(registry)
    path = f"{APP}/manifests/v1"
    answer = await registry.client.request("PUT", path, hang_up(IMAGE), KIND)
    assert answer.codes == ["SIZE_INVALID"]
    assert (await registry.client.request("GET", path)).status == 404


async def test_a_length_that_is_no_number_is_ignored(registry: Registry) -> None:
    """Other servers than ours may pass it on."""
    await push(registry)
    for length in ("\u00b2", "1\u00b9", "-1", "9" * 20, ""):
        assert await put(registry, "v1", content_length=length) == 201, length


async def test_the_same_bytes_have_one_media_type(registry: Registry) -> None:
    await push(registry)
    path = f"{APP}/manifests/v1"
    assert await put(registry, "v1") == 201
    docker = "application/vnd.docker.distribution.manifest.v2+json"
    for reference in ("v1", "v2", digest_of(IMAGE), digest_of(IMAGE, "sha512")):
        answer = await registry.client.request(
            "PUT", f"{APP}/manifests/{reference}", IMAGE, {"content-type": docker}
        )
        assert (answer.status, answer.codes) == (400, ["MANIFEST_INVALID"])
        assert OCI_MANIFEST in answer.json()["errors"][0]["message"]
    assert (await registry.client.request("GET", path)).headers["content-type"] == OCI_MANIFEST
    assert (await registry.client.request("GET", f"{APP}/manifests/v2")).status == 404
    for kind in (OCI_MANIFEST, f"{OCI_MANIFEST}; charset=utf-8", "application/json", ""):
        answer = await registry.client.request("PUT", path, IMAGE, {"content-type": kind})
        assert answer.status == 201
    other = "/v2/dev/other"
    blob = f"{other}/blobs/uploads/?digest={DIGEST}"
    assert (await registry.client.request("POST", blob, DATA)).status == 201
    as_docker = {"content-type": docker}
    answer = await registry.client.request("PUT", f"{other}/manifests/v1", IMAGE, as_docker)
    assert answer.status == 201
    answer = await registry.client.request("PUT", f"{other}/manifests/v1", IMAGE)
    assert answer.status == 201  # nothing was said that contradicts


async def test_a_blob_over_the_limit_is_refused_and_leaves_nothing(
    sqlite_database: str, tmp_path: Path
) -> None:
    with closing(FilesystemStore(tmp_path / "blobs")) as store:
        async with open_registry(
            sqlite_database, store, limits=Limits(max_blob_bytes=1024)
        ) as registry:
            path = f"{APP}/blobs/uploads/?digest={DIGEST}"
            answer = await registry.client.request("POST", path, DATA)
            assert (answer.status, answer.codes) == (413, ["SIZE_INVALID"])
            assert list(store.files.list_staged()) == []
            started = await registry.client.request("POST", f"{APP}/blobs/uploads/")
            location = started.headers["location"]
            assert (await registry.client.request("PATCH", location, DATA[:1000])).status == 202
            answer = await registry.client.request("PATCH", location, DATA[1000:])
            assert answer.status == 413
            there = await registry.client.request("GET", location)
            assert there.headers["range"] == "0-999"


async def test_a_look_keeps_a_blob_from_the_sweep(registry: Registry, sqlite_database: str) -> None:
    await push(registry)
    path = f"{APP}/blobs/{DIGEST}"
    with querying(sqlite_database) as query:
        ((pushed,),) = query("SELECT touched_at FROM repository_blobs")
        for method, hours, is_touched in (("HEAD", 11, False), ("GET", 2, False)):
            registry.clock.advance(hours * 3600)
            assert (await registry.client.request(method, path)).status == 200
            ((touched,),) = query("SELECT touched_at FROM repository_blobs")
            assert (touched > pushed) is is_touched
        assert (await registry.client.request("HEAD", path)).status == 200
        ((touched,),) = query("SELECT touched_at FROM repository_blobs")
        assert touched > pushed + 12 * 3600 * 1_000_000


async def test_what_another_account_holds_cannot_be_mounted(registry: Registry) -> None:
    await push(registry)
    for source in ("other/app", "not a name", ""):
        path = f"/v2/dev/new/blobs/uploads/?mount={DIGEST}&from={source.replace(' ', '+')}"
        answer = await registry.client.request("POST", path)
        assert answer.status == 202
        assert answer.headers["range"] == "0-0"
    answer = await registry.client.request("POST", f"/v2/other/new/blobs/uploads/?mount={DIGEST}")
    assert answer.codes == ["NAME_UNKNOWN"]


async def test_the_catalog_goes_on_after_any_name(registry: Registry) -> None:
    names = ["dev/a", "dev/b/c", "dev/z"]
    for name in names:
        await registry.client.request("POST", f"/v2/{name}/blobs/uploads/")
    for rest, places in (
        (names, ("", "dev/", "dev", "aaa/zzz", "b")),
        (names[1:], ("dev/a", "dev/b")),
        ([], ("dev/z", "dew", "zzz/a")),
    ):
        for last in places:
            answer = await registry.client.request("GET", f"/v2/_catalog?last={last}")
            assert answer.json()["repositories"] == rest, last


async def test_staged_bytes_that_are_gone_end_their_session(
    sqlite_database: str, tmp_path: Path
) -> None:
    """A failed flush condemns the bytes; the client must hear that it has to begin again."""

    with closing(FilesystemStore(tmp_path / "blobs")) as store:
        async with open_registry(sqlite_database, store) as registry:
            ask = registry.client.request
            for method in ("PATCH", "PUT", "DELETE"):
                location = (await ask("POST", f"{APP}/blobs/uploads/")).headers["location"]
                assert (await ask("PATCH", location, DATA)).status == 202
                (staged,) = store.files.list_staged()
                await store.discard(staged.object_id)
                target = f"{location}?digest={DIGEST}" if method == "PUT" else location
                answer = await ask(method, target, DATA)
                assert answer.status == (204 if method == "DELETE" else 404)
                assert (await ask("GET", location)).codes == ["BLOB_UPLOAD_UNKNOWN"]
            assert list(store.files.list_staged()) == []
            with querying(sqlite_database) as query:
                assert upload_ids(query) == set()


PART: Final = {"mediaType": "a/b", "digest": digest_of(b""), "size": 0}
SUBJECT: Final = {"mediaType": OCI_MANIFEST, "digest": digest_of(b"subject"), "size": 1}


async def test_a_page_ends_before_the_manifests_on_it_are_too_large(sqlite_database: str) -> None:
    """Two hundred of 4 MiB would be 800 MiB of annotations."""

    async with open_registry(sqlite_database, MemoryStore()) as registry:
        ask = registry.client.request
        upload = f"{APP}/blobs/uploads/?digest={PART['digest']}"
        assert (await ask("POST", upload)).status == 201
        pushed = []
        for number, size in enumerate((10, 1 << 20, 1 << 20, 1 << 20, 10, 4_190_000, 10)):
            document = {
                "schemaVersion": 2,
                "config": PART,
                "layers": [],
                "subject": SUBJECT,
                "annotations": {"é": f"{number}" + "x" * size},
            }
            body = json.dumps(document).encode()
            assert (await ask("PUT", f"{APP}/manifests/{number}", body, KIND)).status == 201
            pushed.append(document["annotations"])
        pages = []
        url: str | None = f"{APP}/referrers/{SUBJECT['digest']}"
        while url:
            answer = await ask("GET", url)
            pages.append([each["annotations"] for each in answer.json()["manifests"]])
            assert len(pages[-1]) == 1 or len(answer.body) < MAX_BYTES
            link = answer.headers.get("link")
            url = link[1 : link.index(">")] if link else None
        assert [len(page) for page in pages] == [3, 2, 1, 1]
        assert [each for page in pages for each in page] == pushed
