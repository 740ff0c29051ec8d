"""The data plane in process: what its handlers say beyond what the model of a registry covers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from registry.blobstore.base import OpenObject
from registry.blobstore.disk.store import FilesystemStore
from registry.oci.digest import digest_of
from registry.oci.manifest import MAX_BYTES
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from registry.settings.groups import Limits
from tests.inprocess import ZERO_COPY, Client, Registry, hang_up, open_registry
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


async def put(
    registry: Registry, reference: str, body: bytes = IMAGE, **headers: str
) -> tuple[int, Mapping[str, str]]:
    kind = KIND | {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await registry.client.request("PUT", f"{APP}/manifests/{reference}", body, kind)
    return answer.status, answer.headers


def about(subject: str, **fields: object) -> bytes:
    """Return a manifest about another."""
    document: dict[str, Any] = json.loads(IMAGE) | fields
    document["subject"] = {"mediaType": OCI_MANIFEST, "digest": subject, "size": 1}
    return json.dumps(document).encode()


async def test_the_base_answers(registry: Registry) -> None:
    for path in ("/v2", "/v2/"):
        assert (await registry.client.request("GET", path)).body == b"{}"
        assert (await registry.client.request("HEAD", path)).headers["content-length"] == "2"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v2/", "GET, HEAD"),
        ("DELETE", "/v2/_catalog", "GET, HEAD"),
        ("PUT", f"{APP}/tags/list", "GET, HEAD"),
        ("GET", f"{APP}/blobs/uploads/", "POST"),
        ("PATCH", f"{APP}/blobs/{DIGEST}", "GET, HEAD, DELETE"),
        ("POST", f"{APP}/blobs/uploads/some-id", "GET, HEAD, PATCH, PUT, DELETE"),
        ("PATCH", f"{APP}/manifests/v1", "GET, HEAD, PUT, DELETE"),
        ("DELETE", f"{APP}/referrers/{DIGEST}", "GET, HEAD"),
        ("BREW", f"{APP}/manifests/v1", "GET, HEAD, PUT, DELETE"),
    ],
)
async def test_a_method_that_is_not_there(
    registry: Registry, method: str, path: str, allow: str
) -> None:
    answer = await registry.client.request(method, path)
    assert (answer.status, answer.codes) == (405, ["UNSUPPORTED"])
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize("server", [{}, ZERO_COPY])
@pytest.mark.parametrize("kind", [MemoryStore, FilesystemStore])
async def test_a_blob_comes_whole_or_in_part(
    sqlite_database: str, tmp_path: Path, server: Mapping[str, object], kind: type
) -> None:
    async def scenario(registry: Registry) -> None:
        await push(registry)
        client = Client(registry.app, server)
        path = f"{APP}/blobs/{DIGEST}"
        whole = await client.request("GET", path)
        assert (whole.status, whole.body) == (200, DATA)
        assert whole.headers["accept-ranges"] == "bytes"
        assert whole.headers["etag"] == f'"{DIGEST}"'
        part = await client.request("GET", path, headers={"Range": "bytes=5-300004"})
        assert (part.status, part.body) == (206, DATA[5:300005])
        assert part.headers["content-range"] == f"bytes 5-300004/{len(DATA)}"
        stale = {"Range": "bytes=5-", "If-Range": f'"{digest_of(b"")}"'}
        assert (await client.request("GET", path, headers=stale)).body == DATA
        beyond = await client.request("GET", path, headers={"Range": f"bytes={len(DATA)}-"})
        assert beyond.status == 416
        assert beyond.headers["content-range"] == f"bytes */{len(DATA)}"
        same = await client.request("GET", path, headers={"If-None-Match": f'"{DIGEST}"'})
        assert (same.status, same.body) == (304, b"")
        head = await client.request("HEAD", path, headers={"Range": "bytes=5-6"})
        assert head.status == 200
        assert head.headers["content-length"] == str(len(DATA))

    if kind is MemoryStore:
        async with open_registry(sqlite_database, MemoryStore()) as registry:
            await scenario(registry)
        return
    with closing(FilesystemStore(tmp_path / "blobs")) as store:
        async with open_registry(sqlite_database, store) as registry:
            await scenario(registry)


async def test_a_manifest_is_served_as_it_was_pushed(registry: Registry) -> None:
    await push(registry)
    assert (await put(registry, "v1"))[0] == 201
    path = f"{APP}/manifests/v1"
    found = await registry.client.request("GET", path, headers={"Accept": "text/html"})
    assert (found.body, found.headers["content-type"]) == (IMAGE, OCI_MANIFEST)
    digest = digest_of(IMAGE)
    same = await registry.client.request("GET", path, headers={"If-None-Match": f'"{digest}"'})
    assert same.status == 304
    for reference in (digest_of(b"other"), digest_of(IMAGE, "blake3"), "v2", "-bad"):
        gone = await registry.client.request("GET", f"{APP}/manifests/{reference}")
        assert gone.codes == ["MANIFEST_UNKNOWN"]
    gone = await registry.client.request("GET", "/v2/dev/other/manifests/v1")
    assert gone.codes == ["NAME_UNKNOWN"]


async def test_what_is_not_there_is_told_by_its_kind(registry: Registry) -> None:
    ask = registry.client.request
    for method, path in (
        ("GET", "tags/list"),
        ("DELETE", "manifests/v1"),
        ("DELETE", f"manifests/{DIGEST}"),
        ("DELETE", f"blobs/{DIGEST}"),
        ("HEAD", f"blobs/{DIGEST}"),
    ):
        answer = await ask(method, f"{APP}/{path}")
        assert answer.status == 404
        assert method == "HEAD" or answer.codes == ["NAME_UNKNOWN"]
    for upload in ("not-an-id", "0197741f-0000-7000-8000-000000000000"):
        answer = await ask("PATCH", f"{APP}/blobs/uploads/{upload}", DATA)
        assert answer.codes == ["BLOB_UPLOAD_UNKNOWN"]
    assert (await ask("GET", f"{APP}/referrers/{DIGEST}")).json()["manifests"] == []


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


async def test_a_pull_is_noted_and_a_look_is_not(registry: Registry, sqlite_database: str) -> None:
    await push(registry)
    await put(registry, "v1")
    path = f"{APP}/manifests/v1"
    with querying(sqlite_database) as query:
        await registry.client.request("HEAD", path)
        await registry.ctx.pulls.flush()
        assert query("SELECT last_pulled_at FROM manifests") == [(None,)]
        await registry.client.request("GET", path)
        await registry.ctx.pulls.flush()
        ((when,),) = query("SELECT last_pulled_at FROM manifests")
        assert 0 <= registry.clock.now - when < 61_000_000


@pytest.mark.parametrize(
    ("reference", "body", "status", "code"),
    [
        ("v1", b"", 400, "MANIFEST_INVALID"),
        ("-bad", IMAGE, 400, "MANIFEST_INVALID"),
        (digest_of(b"other"), IMAGE, 400, "DIGEST_INVALID"),
        (f"{digest_of(IMAGE)}?tag=-bad", IMAGE, 400, "MANIFEST_INVALID"),
        (
            f"{digest_of(IMAGE)}?" + "&".join(f"tag=t{n}" for n in range(51)),
            IMAGE,
            400,
            "UNSUPPORTED",
        ),
        ("v1", b" " * (MAX_BYTES + 1), 413, "MANIFEST_INVALID"),
    ],
    ids=range(6),
)
async def test_a_manifest_that_is_refused(
    registry: Registry, reference: str, body: bytes, status: int, code: str
) -> None:
    await push(registry)
    path = f"{APP}/manifests/{reference}"
    for sent in (body, [body]):  # with a declared length, and without
        answer = await registry.client.request("PUT", path, sent, KIND)
        assert (answer.status, answer.codes) == (status, [code])
    assert (await registry.client.request("GET", f"{APP}/tags/list")).json()["tags"] == []


@pytest.mark.parametrize("query", [f"digest={DIGEST}", f"mount={DIGEST}&digest={DIGEST}"])
async def test_a_whole_blob_lies_where_its_range_says(registry: Registry, query: str) -> None:
    path = f"{APP}/blobs/uploads/?{query}"
    for span, status, code in (
        (f"1-{len(DATA)}", 416, "BLOB_UPLOAD_INVALID"),
        (f"0-{len(DATA)}", 400, "SIZE_INVALID"),
        (f"0-{len(DATA) - 2}", 400, "SIZE_INVALID"),
    ):
        for sent in (DATA, [DATA]):  # with a declared length, and without
            answer = await registry.client.request("POST", path, sent, {"Content-Range": span})
            assert (answer.status, answer.codes) == (status, [code])
    absent = await registry.client.request("HEAD", f"{APP}/blobs/{DIGEST}")
    assert absent.status == 404
    whole = {"Content-Range": f"0-{len(DATA) - 1}"}
    assert (await registry.client.request("POST", path, [DATA], whole)).status == 201


async def test_a_manifest_cut_short_is_not_stored(registry: Registry) -> None:
    await push(registry)
    path = f"{APP}/manifests/v1"
    answer = await registry.client.request("PUT", path, hang_up(IMAGE), KIND)
    assert answer.codes == ["SIZE_INVALID"]
    assert (await registry.client.request("GET", path)).status == 404


@pytest.mark.parametrize("length", ["\u00b2", "1\u00b9", "-1", "9" * 20, ""])
async def test_a_length_that_is_no_number_is_ignored(registry: Registry, length: str) -> None:
    """Other servers than ours may pass it on."""
    await push(registry)
    headers = KIND | {"content-length": length}
    path = f"{APP}/manifests/v1"
    assert (await registry.client.request("PUT", path, IMAGE, headers)).status == 201


async def test_the_same_bytes_have_one_media_type(registry: Registry) -> None:
    await push(registry)
    path = f"{APP}/manifests/v1"
    assert (await put(registry, "v1"))[0] == 201
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


async def test_a_wrong_size_is_a_warning(registry: Registry) -> None:
    await push(registry)
    body = IMAGE.replace(f'"size": {len(DATA)}'.encode(), b'"size": 1')
    status, headers = await put(registry, "v1", body)
    assert status == 201
    assert headers["warning"] == f'299 - "descriptor size differs from the stored {DIGEST}"'
    assert "warning" not in (await put(registry, "v2"))[1]


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


async def walk(client: Client, target: str) -> list[list[str]]:
    """Return the digests of each page of a list of referrers."""
    pages: list[list[str]] = []
    while target:
        answer = await client.request("GET", target)
        assert answer.headers["content-type"] == OCI_INDEX
        assert len(answer.body) < MAX_BYTES
        pages.append([item["digest"] for item in answer.json()["manifests"]])
        link = answer.headers.get("link", "<>")
        target = link[1 : link.index(">")]
    return pages


async def test_a_referrer_is_told_with_what_it_says_of_itself(registry: Registry) -> None:
    await push(registry)
    subject = {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 1}
    index = json.dumps({"schemaVersion": 2, "manifests": [], "subject": subject}).encode()
    status, headers = await put(registry, "about", index, content_type=OCI_INDEX)
    assert (status, headers["oci-subject"]) == (201, DIGEST)
    answer = await registry.client.request("GET", f"{APP}/referrers/{DIGEST}")
    assert answer.json() == {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [{"mediaType": OCI_INDEX, "digest": digest_of(index), "size": len(index)}],
    }


@pytest.mark.parametrize(("count", "length", "first"), [(205, 1, 200), (40, 100_000, 31)])
async def test_referrers_come_in_pages_that_clients_can_hold(
    registry: Registry, count: int, length: int, first: int
) -> None:
    await push(registry)
    subject = digest_of(b"subject")
    digests = []
    for number in range(count):
        body = about(subject, annotations={"n": f"{number:0{length}}"})
        digests.append(str(digest_of(body)))
        assert (await put(registry, digests[-1], body))[0] == 201
    path = f"{APP}/referrers/{subject}"
    pages = await walk(registry.client, path)
    assert [digest for page in pages for digest in page] == digests
    assert len(pages[0]) == first
    filtered = f"{path}?artifactType=application%2Fx"
    assert await walk(registry.client, filtered) == pages
    answer = await registry.client.request("GET", filtered)
    assert answer.headers["oci-filters-applied"] == "artifactType"
    for other in ("application/y", "%01"):
        assert await walk(registry.client, f"{path}?artifactType={other}") == [[]]


@pytest.mark.parametrize(
    ("last", "rest"),
    [
        ("", ["dev/a", "dev/b/c", "dev/z"]),
        ("dev/a", ["dev/b/c", "dev/z"]),
        ("dev/b", ["dev/b/c", "dev/z"]),
        ("dev/z", []),
        ("dev/", ["dev/a", "dev/b/c", "dev/z"]),
        ("dev", ["dev/a", "dev/b/c", "dev/z"]),
        ("aaa/zzz", ["dev/a", "dev/b/c", "dev/z"]),
        ("b", ["dev/a", "dev/b/c", "dev/z"]),
        ("dew", []),
        ("zzz/a", []),
    ],
)
async def test_the_catalog_goes_on_after_any_name(
    registry: Registry, last: str, rest: list[str]
) -> None:
    for name in ("a", "b/c", "z"):
        await registry.client.request("POST", f"/v2/dev/{name}/blobs/uploads/")
    answer = await registry.client.request("GET", f"/v2/_catalog?last={last}")
    assert answer.json()["repositories"] == rest


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("if_match", '"{old}"', 201),
        ("if_match", '"{other}", "{old}"', 201),
        ("if_match", "*", 201),
        ("if_match", 'W/"{old}"', 412),  # RFC 9110 §13.1.1: compared strongly
        ("if_match", '"{other}"', 412),
        ("if_match", "{old}", 412),
        ("if_none_match", "*", 412),
        ("if_none_match", '"{old}"', 412),
        ("if_none_match", 'W/"{old}"', 412),
        ("if_none_match", '"{other}"', 201),
    ],
)
async def test_a_tag_moves_on_conditions(
    registry: Registry, header: str, value: str, status: int
) -> None:
    await push(registry)
    await put(registry, "v1")
    condition = value.format(old=digest_of(IMAGE), other=digest_of(b"other"))
    newer = json.dumps(json.loads(IMAGE) | {"annotations": {"new": "er"}}).encode()
    found, _ = await put(registry, "v1", newer, **{header: condition})
    assert found == status


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
