"""``/v1/buckets`` as a client sees it: buckets, objects, tags, CORS rules and uploads in parts."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest

from tests.integration.served_world import Served, open_served

LARGE: Final = bytes(range(256)) * 20480  # 5 MiB
KEYS: Final = (
    *("a/b", "a//b", "/lead", "trail/", "..", "a/../b", "./a", "a+b c", "100%25", "%2F", "what?"),
    *("*", "#", "schön/日本", "é" * 512, "objects", "a%00b"),
)


async def ask(
    served: Served,
    method: str,
    path: str,
    body: object = None,
    token: str = "",
    **headers: str,
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    token = token or served.acme.program_token
    return await served.ask(method, f"/v1/buckets{path}", body, token=token, headers=named)


async def done(
    served: Served, method: str, path: str, body: object = None, **headers: str
) -> dict[str, Any]:
    answer = await ask(served, method, path, body, **headers)
    assert answer.is_success, (method, path, answer.text)
    return dict(answer.json())


async def statuses(served: Served, path: str, *requests: tuple[str, dict[str, str]]) -> list[int]:
    """Send requests of a method and headers, those of PUT with a body; return their statuses."""
    return [
        (await ask(served, method, path, b"x" if method == "PUT" else None, **headers)).status_code
        for method, headers in requests
    ]


async def refused(
    served: Served, method: str, path: str, body: object, status: int = 400, **headers: str
) -> dict[str, Any]:
    answer = await ask(served, method, path, body, **headers)
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return {**error.get("params", {}), "code": error["code"]}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Return an install that all tests of the module share."""
    async with open_served(tmp_path_factory.mktemp("buckets") / "data") as served:
        yield served


@pytest.fixture
async def photos(served: Served, request: pytest.FixtureRequest) -> str:
    """Return the path of a bucket of the test's own, after ``/v1/buckets``."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:60].rstrip("-")
    await done(served, "POST", "", {"name": name})
    return f"/{name}"


async def test_a_bucket_is_made_shown_changed_listed_and_deleted(served: Served) -> None:
    answer = await ask(served, "POST", "", {"name": "photos", "tags": {"a": "b"}})
    made = answer.json()["bucket"]
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/buckets/photos"
    platform = made["kms_key"]
    assert platform["name"] == "platform"
    assert {name: made[name] for name in made.keys() - {"id", "created_at", "kms_key"}} == {
        "crn": f"crn:storage:local:{served.acme.account_id}:bucket/photos",
        "name": "photos",
        "region": "local",
        "tags": {"a": "b"},
        "object_count": 0,
        "byte_count": 0,
        "upload_byte_count": 0,
        "rewrap": None,
        "faults": [],
    }
    await ask(served, "PUT", "/photos/objects/key", b"bytes")
    shown = (await done(served, "GET", "/photos"))["bucket"]
    assert shown == {**made, "object_count": 1, "byte_count": 5}
    key = await served.make("/v1/keys", {"name": "photos"}, token=served.acme.program_token)
    changes = {"tags": {}, "kms_key": "photos"}
    changed = (await done(served, "PATCH", "/photos", changes))["bucket"]
    assert (changed["tags"], changed["kms_key"]["id"]) == ({}, key["id"])
    assert changed["rewrap"]["status"] == "running"
    back = (await done(served, "PATCH", "/photos", {"kms_key": None}))["bucket"]
    assert back["kms_key"] == platform
    assert back["rewrap"]["started_at"] == changed["rewrap"]["started_at"], "one at a time"
    (listed,) = (await done(served, "GET", "?name=photos"))["buckets"]
    assert (listed["name"], listed["byte_count"]) == ("photos", 5)
    page = await done(served, "GET", "?limit=1")
    meta = page["meta"]
    assert (len(page["buckets"]), meta["limit"], meta["has_more"]) == (1, 1, True)
    rest = await done(served, "GET", f"?marker={meta['marker']}")
    names = [each["name"] for each in (*page["buckets"], *rest["buckets"])]
    assert names == sorted(names)
    assert (len(names), {"bucket-of-acme", "photos"} <= {*names}) == (meta["total"], True)
    assert (await refused(served, "DELETE", "/photos", None, 409))["reason"] == "bucket_not_empty"
    await ask(served, "DELETE", "/photos/objects/key")
    assert (await ask(served, "DELETE", "/photos")).status_code == 204
    assert (await refused(served, "GET", "/photos", None, 404))["reason"] == "bucket_not_found"


async def test_a_bucket_name_is_unique_in_the_region(served: Served, photos: str) -> None:
    name = {"name": photos[1:]}
    assert (await refused(served, "POST", "", name, 409))["reason"] == "bucket_owned"
    theirs = served.globex.program_token
    answer = await ask(served, "POST", "", name, token=theirs)
    assert answer.status_code == 409
    assert answer.json()["error"]["params"] == {"reason": "bucket_exists"}
    assert (await ask(served, "GET", photos, token=theirs)).status_code == 404
    for bad in ("ab", "Photos", "192.168.5.4", "a..b", "-ab"):
        assert (await refused(served, "POST", "", {"name": bad}))["field"] == "name"
    elsewhere = {"name": "other", "region": "elsewhere"}
    assert (await refused(served, "POST", "", elsewhere))["reason"] == "foreign_region"
    await done(served, "POST", "", {"name": "other", "region": "local"})


def encoded(key: str) -> str:
    """Return a key for a path; clients take dots away, encoded ones not."""
    return quote(key, safe="").replace(".", "%2E")


async def test_keys_survive_byte_for_byte(served: Served, photos: str) -> None:
    for key in KEYS:
        path = f"{photos}/objects/{encoded(key)}"
        made = (await done(served, "PUT", path, key.encode()))["object"]
        assert made["key"] == key
    for key in KEYS:
        answer = await ask(served, "GET", f"{photos}/objects/{encoded(key)}")
        assert answer.content == key.encode()
        slashed = encoded(key).replace("%2F", "/")
        answer = await ask(served, "GET", f"{photos}/objects/{slashed}")
        assert answer.content == key.encode(), "a slash may stand as it is"
    listed = (await done(served, "GET", f"{photos}/objects"))["objects"]
    assert [each["key"] for each in listed] == sorted(KEYS, key=str.encode)
    for bad in ("é" * 513, "k" * 1025):
        refusal = await refused(served, "PUT", f"{photos}/objects/{quote(bad)}", b"")
        assert refusal["field"] == "key"


async def test_an_object_comes_back_with_what_was_said_of_it(served: Served, photos: str) -> None:
    headers = {
        "content_type": "text/html",
        "cache_control": "max-age=1",
        "x_amz_meta_owner": "=?UTF-8?B?SsO8cmdlbg==?=",
    }
    path = f"{photos}/objects/page"
    made = (await done(served, "PUT", path, b"<p>", **headers))["object"]
    md5 = hashlib.md5(b"<p>").hexdigest()
    assert made["metadata"] == {"owner": "Jürgen"}
    assert (made["etag"], made["size"], made["content_type"]) == (md5, 3, "text/html")
    assert made["headers"] == {"cache-control": "max-age=1"}
    assert made["crn"].endswith(f":bucket{photos}/page")
    for method in ("GET", "HEAD"):
        answer = await ask(served, method, path)
        assert answer.status_code == 200
        assert answer.content == (b"<p>" if method == "GET" else b"")
        got = answer.headers
        assert (got["content-length"], got["etag"]) == ("3", f'"{md5}"')
        assert (got["content-type"], got["cache-control"]) == ("text/html", "max-age=1")
        assert got["x-amz-meta-owner"] == "=?utf-8?b?SsO8cmdlbg==?="
        assert got["content-security-policy"] == "sandbox; default-src 'none'"
        assert got["x-content-type-options"] == "nosniff"
    assert (await ask(served, "DELETE", path)).status_code == 204
    assert (await refused(served, "GET", path, None, 404))["reason"] == "object_not_found"
    assert (await refused(served, "DELETE", path, None, 404))["reason"] == "object_not_found"


async def test_ranges_and_conditions(served: Served, photos: str) -> None:
    path = f"{photos}/objects/key"
    etag = f'"{(await done(served, "PUT", path, LARGE))["object"]["etag"]}"'
    answer = await ask(served, "GET", path, range="bytes=5-9")
    assert (answer.status_code, answer.content) == (206, LARGE[5:10])
    assert answer.headers["content-range"] == f"bytes 5-9/{len(LARGE)}"
    assert (await ask(served, "GET", path, range="bytes=-3")).content == LARGE[-3:]
    assert (await ask(served, "GET", path, range="bytes=0-1,4-5")).content == LARGE
    beyond = f"bytes={len(LARGE)}-"
    refusal = await refused(served, "GET", path, None, 416, range=beyond)
    assert refusal == {"code": "RANGE_NOT_SATISFIABLE", "size": len(LARGE)}
    answer = await ask(served, "GET", path, range=beyond)
    assert answer.headers["content-range"].startswith("bytes */")
    for query in ("versionId=3", "tagging=x"):
        assert (await ask(served, "GET", f"{path}?{query}")).status_code == 400, query
    answer = await ask(served, "GET", path, if_none_match=etag)
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    other = {"if_match": '"other"'}
    refusal = await refused(served, "GET", path, None, 412, **other)
    assert refusal == {"code": "PRECONDITION_FAILED", "condition": "If-Match"}
    new = {"if_none_match": "*"}
    sent = (("PUT", new), ("PUT", other), ("DELETE", other), ("PUT", {"if_match": etag}))
    assert await statuses(served, path, *sent) == [412, 412, 412, 200]
    assert await statuses(served, f"{path}2", ("PUT", new)) == [200]


def test_ranges_and_conditions_are_described(described: dict[str, Any]) -> None:
    methods = described["paths"]["/v1/buckets/{bucket}/objects/{key}"]
    for method, expected in (
        ("get", ["If-Match", "If-None-Match", "Range", "If-Range"]),
        ("put", ["If-Match", "If-None-Match"]),
    ):
        parameters = methods[method]["parameters"]
        assert [each["name"] for each in parameters if each["in"] == "header"] == expected


async def test_tagging_without_a_value_selects_the_tag_set(served: Served, photos: str) -> None:
    path = f"{photos}/objects/a%2Fb"
    await done(served, "PUT", path, b"bytes")
    for asked in ("?tagging", "?tagging="):
        answer = await ask(served, "GET", path + asked)
        assert answer.json() == {"tags": {}}
        assert answer.headers["content-type"] == "application/json"
    full = {"tags": {f"{n}{'k' * 127}": "v" * 256 for n in range(10)}}
    assert (await done(served, "PUT", f"{path}?tagging", full))["object"]["tags"] == full["tags"]
    assert await done(served, "GET", f"{path}?tagging") == full
    for bad in ({**full["tags"], "more": ""}, {"k" * 129: ""}, {"k": "v" * 257}, {"": "v"}):
        refusal = await refused(served, "PUT", f"{path}?tagging", {"tags": bad})
        assert refusal["field"] == "tags"
    for bad_body in (b"", b"[]", b"{", b'{"tags": {"a": 1}}', b'{"tags": {}, "x": 1}'):
        await refused(served, "PUT", f"{path}?tagging", bad_body)
    assert (await ask(served, "DELETE", f"{path}?tagging")).status_code == 204
    assert await done(served, "GET", f"{path}?tagging") == {"tags": {}}
    assert (await ask(served, "GET", path)).content == b"bytes", "the object is as it was"
    assert (await ask(served, "GET", f"{photos}/objects/none?tagging")).status_code == 404


async def test_to_delete_cors_needs_put_bucket_cors_and_is_204_also_without(
    served: Served, photos: str
) -> None:
    path = f"{photos}/cors"
    assert (await refused(served, "GET", path, None, 404))["reason"] == "cors_not_found"
    assert (await ask(served, "DELETE", path)).status_code == 204
    rule = {
        "allowed_origins": ["https://*.example.com", "*"],
        "allowed_methods": ["GET", "PUT"],
        "allowed_headers": ["*"],
        "expose_headers": ["ETag"],
        "max_age_seconds": 60,
    }
    rules = {"cors_rules": [rule]}
    assert await done(served, "PUT", path, rules) == rules
    assert await done(served, "GET", path) == rules
    changes: list[dict[str, object]] = [
        {"allowed_origins": []},
        {"allowed_origins": ["https://*.*.com"]},
        {"allowed_methods": ["PATCH"]},
        {"expose_headers": ["*"]},
        {"expose_headers": ["a\n"]},
        {"max_age_seconds": -1},
    ]
    for change in changes:
        await refused(served, "PUT", path, {"cors_rules": [rule | change]})
    reads = {"effect": "allow", "actions": ["storage:GetBucket*"], "resources": ["*"]}
    token = await served.token_that_may(reads, name="reads-buckets")
    assert (await ask(served, "GET", path, token=token)).status_code == 200
    assert (await ask(served, "DELETE", path, token=token)).status_code == 403
    assert (await ask(served, "DELETE", path)).status_code == 204
    assert (await ask(served, "GET", path)).status_code == 404


async def begin(served: Served, photos: str, **fields: object) -> tuple[str, dict[str, Any]]:
    """Begin an upload; return its path."""
    path = f"{photos}/multipart-uploads"
    upload = (await done(served, "POST", path, {"key": "a/b", **fields}))["upload"]
    return f"{path}/{upload['upload_id']}", upload


async def test_an_object_is_sent_in_parts(served: Served, photos: str) -> None:
    path, upload = await begin(served, photos)
    assert {name: upload[name] for name in upload.keys() - {"upload_id", "created_at"}} == {
        "bucket": photos[1:],
        "key": "a/b",
        "content_type": "application/octet-stream",
        "storage_class": "STANDARD",
        "metadata": {},
        "tags": {},
    }
    assert await done(served, "GET", path) == {"upload": upload}
    parts = [
        (await done(served, "PUT", f"{path}/parts/{number}", data))["part"]
        for number, data in ((1, LARGE), (3, b"end"))
    ]
    md5 = hashlib.md5(LARGE).hexdigest()
    assert (parts[0]["part_number"], parts[0]["etag"], parts[0]["size"]) == (1, md5, len(LARGE))
    listed = await done(served, "GET", f"{path}/parts?limit=1")
    assert listed["parts"] == parts[:1]
    assert (listed["meta"]["total"], listed["meta"]["has_more"]) == (2, True)
    more = f"{path}/parts?limit=1&marker={listed['meta']['marker']}"
    assert await done(served, "GET", more) == {
        "parts": parts[1:],
        "meta": {"total": 2, "limit": 1, "has_more": False},
    }
    given = [{"part_number": each["part_number"], "etag": each["etag"]} for each in parts]
    small = [given[1], {"part_number": 4, "etag": given[0]["etag"]}]
    assert (await refused(served, "POST", f"{path}/complete", {"parts": small}))["part_number"] == 4
    assert (await refused(served, "POST", f"{path}/complete", {"parts": given[::-1]}))["reason"]
    made = (await done(served, "POST", f"{path}/complete", {"parts": given}))["object"]
    both = hashlib.md5(bytes.fromhex(parts[0]["etag"]) + bytes.fromhex(parts[1]["etag"]))
    assert (made["key"], made["etag"]) == ("a/b", f"{both.hexdigest()}-2")
    again = await done(served, "POST", f"{path}/complete", {"parts": given})
    assert again == {"object": made}
    assert (await ask(served, "GET", f"{photos}/objects/a%2Fb")).content == LARGE + b"end"
    assert (await ask(served, "GET", path)).status_code == 404
    assert (await ask(served, "DELETE", path)).status_code == 404


async def test_uploads_are_listed_and_aborted_once(served: Served, photos: str) -> None:
    path, upload = await begin(served, photos)
    _, other = await begin(served, photos, key="c")
    listed = await done(served, "GET", f"{photos}/multipart-uploads?limit=1")
    assert listed["uploads"] == [upload]
    assert listed["meta"]["total"] == 2
    more = f"{photos}/multipart-uploads?limit=1&marker={listed['meta']['marker']}"
    assert (await done(served, "GET", more))["uploads"] == [other]
    found = await done(served, "GET", f"{photos}/multipart-uploads?prefix=a")
    assert found["uploads"] == [upload]
    await done(served, "PUT", f"{path}/parts/1", b"part")
    assert (await done(served, "GET", photos))["bucket"]["upload_byte_count"] == 4
    for number in ("0", "10001", "x", "-1", "1.0", "%31"):
        status = 200 if number == "%31" else 400
        answer = await ask(served, "PUT", f"{path}/parts/{number}", b"part")
        assert answer.status_code == status, number
    assert (await ask(served, "DELETE", path)).status_code == 204
    assert (await ask(served, "DELETE", path)).status_code == 404
    assert (await ask(served, "PUT", f"{path}/parts/1", b"part")).status_code == 404
    assert (await done(served, "GET", photos))["bucket"]["upload_byte_count"] == 0


async def test_ten_thousand_parts_can_be_listed_in_a_completion(
    served: Served, photos: str
) -> None:
    path, _ = await begin(served, photos)
    parts = [{"part_number": n, "etag": '"' + "0" * 32 + '"'} for n in range(1, 10_001)]
    refusal = await refused(served, "POST", f"{path}/complete", {"parts": parts})
    assert refusal["part_number"] == 1, "it was read, and the first part is not there"
    parts.append({"part_number": 10_001, "etag": "0"})
    await refused(served, "POST", f"{path}/complete", {"parts": parts})


async def test_metadata_of_an_upload_come_back_alike(served: Served, photos: str) -> None:
    given = {"metadata": {"Owner": "Jürgen", "plain": "a b"}, "content_type": "text/plain"}
    path, upload = await begin(served, photos, **given, storage_class="GLACIER")
    wanted = {"owner": "Jürgen", "plain": "a b"}
    assert upload["metadata"] == wanted
    part = (await done(served, "PUT", f"{path}/parts/1", b"part"))["part"]
    parts = [{"part_number": 1, "etag": part["etag"]}]
    made = (await done(served, "POST", f"{path}/complete", {"parts": parts}))["object"]
    assert (made["metadata"], made["storage_class"]) == (wanted, "GLACIER")
    headers = (await ask(served, "GET", f"{photos}/objects/a%2Fb")).headers
    assert headers["x-amz-meta-owner"] == "=?utf-8?b?SsO8cmdlbg==?="
    assert (headers["x-amz-meta-plain"], headers["content-type"]) == ("a b", "text/plain")
    for bad in ({"a b": ""}, {"a": "\n"}, {"a": "x" * 8192}, {"a": "1", "A": "2"}):
        body = {"key": "a", "metadata": bad}
        refusal = await refused(served, "POST", f"{photos}/multipart-uploads", body)
        assert refusal["field"] == "metadata"


async def test_a_list_has_pages_prefixes_and_groups(served: Served, photos: str) -> None:
    for key in ("a", "b/1", "b/2", "c", "d/1"):
        await done(served, "PUT", f"{photos}/objects/{quote(key, safe='')}", b"")
    page = await done(served, "GET", f"{photos}/objects?delimiter=%2F&limit=2")
    assert ([each["key"] for each in page["objects"]], page["common_prefixes"]) == (["a"], ["b/"])
    more = f"{photos}/objects?delimiter=%2F&limit=2&marker={page['meta']['marker']}"
    page = await done(served, "GET", more)
    assert ([each["key"] for each in page["objects"]], page["common_prefixes"]) == (["c"], ["d/"])
    assert page["meta"] == {"limit": 2, "has_more": False}
    found = await done(served, "GET", f"{photos}/objects?prefix=b%2F")
    assert [each["key"] for each in found["objects"]] == ["b/1", "b/2"]
    assert (await ask(served, "GET", more.replace("limit=2", "prefix=b"))).status_code == 400
    for limit in (0, 201):
        assert (await ask(served, "GET", f"{photos}/objects?limit={limit}")).status_code == 400


async def test_rights_are_those_of_the_access_key(served: Served, photos: str) -> None:
    crn = f"crn:storage:local:{served.acme.account_id}:bucket{photos}"
    token = await served.token_that_may(
        {
            "effect": "allow",
            "actions": [f"storage:{verb}Object" for verb in ("Get", "Put", "Delete")],
            "resources": [f"{crn}/mine/*"],
        },
        {"effect": "deny", "actions": ["*"], "resources": [f"{crn}/mine/private*"]},
        name="own-folder",
    )

    async def status(method: str, path: str, body: object = None) -> int:
        return (await ask(served, method, f"{photos}{path}", body, token=token)).status_code

    def of(key: str) -> str:
        return f"/objects/{quote(key, safe='')}"

    assert await status("PUT", of("mine/a b*"), b"x") == 200
    assert await status("GET", of("mine/a b*")) == 200
    assert await status("GET", of("mine/absent")) == 404
    for key in ("other", "mine", "mine%2Fa", "mine/private", "mine/private/x"):
        for method in ("GET", "PUT", "DELETE"):
            assert await status(method, of(key), b"x" if method == "PUT" else None) == 403, key
    assert await status("GET", "/objects") == 403
    uploads = f"{photos}/multipart-uploads"
    answer = await ask(served, "POST", uploads, {"key": "mine/b"}, token=token)
    path = f"/multipart-uploads/{answer.json()['upload']['upload_id']}"
    assert await status("PUT", f"{path}/parts/1", b"x") == 200
    assert await status("DELETE", path) == 403
    assert await status("POST", "/multipart-uploads", {"key": "other"}) == 403


async def test_a_body_that_is_longer_than_it_may_be_is_refused_unread(
    served: Served, photos: str
) -> None:
    headers = {"content_length": str((5 << 30) + 1)}
    refusal = await refused(served, "PUT", f"{photos}/objects/a", b"", 413, **headers)
    assert refusal["code"] == "PAYLOAD_TOO_LARGE"
    tags = b'{"tags": {"a": "%s"}}' % (b"x" * 70_000)
    await done(served, "PUT", f"{photos}/objects/a", b"")
    assert (await ask(served, "PUT", f"{photos}/objects/a?tagging", tags)).status_code == 413


async def test_a_condition_or_a_checksum_that_nobody_checks_is_refused(
    served: Served, photos: str
) -> None:
    path = f"{photos}/objects/key"
    await ask(served, "PUT", path, b"bytes")
    past = {"If_Unmodified_Since": "Mon, 01 Jan 2001 00:00:00 GMT"}
    md5, crc = {"Content_MD5": "AAAAAAAAAAAAAAAAAAAAAA=="}, {"x_amz_checksum_crc32": "AAAAAA=="}
    sent = (("PUT", past), ("PUT", md5), ("PUT", crc), ("DELETE", past))
    assert await statuses(served, path, *sent) == [400] * 4
    assert (await ask(served, "GET", path)).content == b"bytes"
