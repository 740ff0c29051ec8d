"""What S3 clients send that must be taken for nothing else, or not at all."""

from __future__ import annotations

import asyncio
import gc
from base64 import b64encode
from pathlib import Path
from time import process_time
from typing import Any, Final
from unittest.mock import AsyncMock

import pytest

from cloudcore.errors import Unavailable
from cloudcore.storage import object_reads
from cloudcore.storage.checksums import Algorithm, encode, new_checksum
from cloudcore.storage.s3 import app
from cloudcore.storage.s3.answers import NAMESPACE
from tests.databases import on_both_databases
from tests.integration.damaged import flip
from tests.integration.s3_client import S3Client, code_of, deletion, texts
from tests.tenants import Statement, allow, document

OTHER_CHANGES: Final = (
    *("renameObject", "append", "annotation", "partNumber=1", "versionId=abc", "unheard-of"),
    *("metadataTable", "session"),
)
HARD_TO_SHOW: Final = ("a\x85b", "a\u2028b", "a\u2029x: y", "\u2028", "é", "a =?b", " a", "=?x?=")
RULE: Final = "<AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
CORS: Final = f"<CORSConfiguration><CORSRule>{RULE}</CORSRule></CORSConfiguration>".encode()
BAD_RULES: Final = (
    "<ExposeHeader>中</ExposeHeader>",
    "<ExposeHeader>a, b: c</ExposeHeader>",
    f"<ExposeHeader>{'x' * 129}</ExposeHeader>",
    "<AllowedHeader>a*b*c</AllowedHeader>",
    "<AllowedHeader>中</AllowedHeader>",
    f"<AllowedOrigin>{'x' * 257}</AllowedOrigin>",
    "<AllowedOrigin>http://a</AllowedOrigin>" * 100,
    "<MaxAgeSeconds>999999999</MaxAgeSeconds>",
    f"<ID>{'x' * 256}</ID>",
    "<!-- long -->" * 6000,
    "<AllowedHeader>a</AllowedHeader>" * 101,
    "<AllowedMethod>PATCH</AllowedMethod>",
)


@pytest.fixture
async def s3(s3: S3Client) -> S3Client:
    """Return a client whose account has a bucket ``bucket``, with an object ``key``."""
    await s3.done("PUT", "/bucket/key", b"bytes")
    return s3


async def test_a_parameter_that_could_mean_another_change_changes_nothing(s3: S3Client) -> None:
    for parameter in OTHER_CHANGES:
        assert (await s3.ask("PUT", f"/bucket/key?{parameter}")).status_code == 400, parameter
    for parameter in ("versionId=abc", "tagging&versionId=abc"):
        for method in ("GET", "DELETE"):
            assert await s3.code(method, f"/bucket/key?{parameter}") == "NoSuchVersion", parameter
    assert await s3.code("GET", "/bucket/key?session") == "NotImplemented"
    assert (await s3.ask("GET", "/bucket/key?versionId=null&x-id=GetObject")).content == b"bytes"
    assert (await s3.ask("PUT", "/bucket/other?x-id=PutObject")).status_code == 200
    assert code_of(await s3.ask("GET", "//bucket/key")) == "InvalidBucketName"
    assert code_of(await s3.ask("GET", "/bucket?list-type=3")) == "InvalidArgument"
    for token in ("", "!!!"):
        answer = await s3.ask("GET", f"/bucket?list-type=2&continuation-token={token}")
        assert code_of(answer) == "InvalidArgument"


async def test_a_request_that_contradicts_itself_changes_nothing(s3: S3Client) -> None:
    tags = "<Tag><Key>a</Key><Value>b</Value></Tag>" * 2
    twice = f"<Tagging><TagSet>{tags}</TagSet></Tagging>".encode()
    (etag,) = texts(await s3.done("GET", "/bucket"), "ETag")
    copy = {"x_amz_copy_source": "bucket/key"}
    later = {"x_amz_copy_source_if_modified_since": "Fri, 01 Jan 2100 00:00:00 GMT"}
    tried: list[tuple[str, str, bytes, dict[str, str], str]] = [
        ("GET", "/bucket/key?partNumber=1", b"", {"range": "bytes=0-1"}, "InvalidRequest"),
        ("GET", "/bucket/key?response-expires=a%0Ab", b"", {}, "InvalidArgument"),
        ("GET", "/bucket?prefix=a%00", b"", {}, "InvalidArgument"),
        ("GET", "/bucket?uploads&delimiter=/", b"", {}, "NotImplemented"),
        ("PUT", "/bucket/key?tagging", twice, {}, "InvalidTag"),
        ("PUT", "/bucket/b", b"", {**copy, "x_amz_metadata_directive": "MERGE"}, "InvalidArgument"),
        ("PUT", "/bucket/b", b"", {**copy, "x_amz_tagging_directive": "MERGE"}, "InvalidArgument"),
        *(
            ("PUT", "/bucket/b", b"", {**copy, **condition}, "PreconditionFailed")
            for condition in ({"x_amz_copy_source_if_none_match": etag}, later)
        ),
        *(
            ("POST", "/bucket/b?uploads", b"", kinds, "InvalidRequest")
            for kinds in (
                {"x_amz_checksum_type": "COMPOSITE"},
                {"x_amz_checksum_type": "FULL_OBJECT", "x_amz_checksum_algorithm": "SHA256"},
                {"x_amz_checksum_type": "COMPOSITE", "x_amz_checksum_algorithm": "CRC64NVME"},
            )
        ),
    ]
    for method, target, body, headers, code in tried:
        assert await s3.code(method, target, body, **headers) == code, (target, headers)
    assert texts(await s3.done("GET", "/bucket"), "Key") == ["key"]
    assert texts(await s3.done("GET", "/bucket?uploads"), "UploadId") == []
    assert texts(await s3.done("GET", "/bucket/key?tagging"), "Key") == []


async def test_a_fault_of_the_server_tells_no_details_but_to_its_log(
    s3: S3Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = AsyncMock(side_effect=RuntimeError("an inner secret"))
    monkeypatch.setattr(object_reads, "find_object", fails)
    answer = await s3.receive(s3.sign("GET", "/bucket/key"))
    assert (answer.status_code, code_of(answer)) == (500, "InternalError")
    assert "secret" not in answer.text
    assert "an inner secret" in caplog.text


async def test_an_answer_stands_though_the_rules_of_cors_cannot_be_read(
    s3: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await s3.done("PUT", "/bucket?cors", CORS)
    page = "https://a.example"
    allowed = await s3.ask("GET", "/bucket/key", origin=page)
    assert allowed.headers["access-control-allow-origin"] == "*"
    monkeypatch.setattr(app, "with_cors", AsyncMock(side_effect=Unavailable("it is away")))
    answer = await s3.ask("GET", "/bucket/key", origin=page)
    assert (answer.status_code, answer.content) == (200, b"bytes")
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_copy_has_the_tags_of_its_source_or_those_that_replace_them(s3: S3Client) -> None:
    await s3.done("PUT", "/bucket/tagged", b"bytes", x_amz_tagging="a=b")
    for directive, key in (("COPY", "a"), ("replace", "c")):
        headers = {"x_amz_tagging": "c=d", "x_amz_tagging_directive": directive}
        await s3.done("PUT", "/bucket/copy", b"", x_amz_copy_source="bucket/tagged", **headers)
        assert texts(await s3.done("GET", "/bucket/copy?tagging"), "Key") == [key]


async def test_in_a_batch_of_deletions_a_key_that_is_too_long_fails_alone(s3: S3Client) -> None:
    found = await s3.done("POST", "/bucket?delete", deletion("key", "k" * 1025))
    assert texts(found, "Code") == ["KeyTooLongError"]
    assert texts(await s3.done("GET", "/bucket"), "Key") == []


@on_both_databases
async def test_a_null_character_is_refused_wherever_it_is_encoded(s3: S3Client) -> None:
    """PostgreSQL's text has none, so it must not reach a statement."""
    for source in ("b%00/key", "bucket/k%00", "%00/%00"):
        assert await s3.code("PUT", "/bucket/copy", x_amz_copy_source=source) == "InvalidArgument"
    for null in ("AA", "YQBi"):  # "\0" and "a\0b"
        for target in ("/?", "/bucket?list-type=2&"):
            code = await s3.code("GET", f"{target}continuation-token={null}")
            assert code == "InvalidArgument", target


async def test_a_condition_or_a_lock_that_is_not_obeyed_is_refused(s3: S3Client) -> None:
    for condition in ("<Size>9</Size>", "<VersionId>1</VersionId>"):
        body = f"<Delete><Object><Key>key</Key>{condition}</Object></Delete>".encode()
        assert code_of(await s3.ask("POST", "/bucket?delete", body)) == "NotImplemented"
    answer = await s3.ask("DELETE", "/bucket/key", x_amz_if_match_size="9")
    assert code_of(answer) == "NotImplemented"
    body = b"<Delete><Object><Key>key<x/>.txt</Key></Object></Delete>"
    assert code_of(await s3.ask("POST", "/bucket?delete", body)) == "MalformedXML"
    assert (await s3.ask("GET", "/bucket/key")).content == b"bytes"
    answer = await s3.ask("PUT", "/locked", x_amz_bucket_object_lock_enabled="true")
    assert code_of(answer) == "NotImplemented"


async def test_metadata_that_no_header_can_hold_comes_back(s3: S3Client) -> None:
    for value in HARD_TO_SHOW:
        sent = f"=?utf-8?b?{b64encode(value.encode()).decode()}?="
        await s3.done("PUT", "/bucket/hard", b"", x_amz_meta_a=sent)
        answer = await s3.ask("GET", "/bucket/hard")
        assert answer.status_code == 200, value
        shown = answer.headers["x-amz-meta-a"]
        assert shown in (sent, value), value
        await s3.done("PUT", "/bucket/again", b"", x_amz_meta_a=shown)
        assert (await s3.ask("GET", "/bucket/again")).headers["x-amz-meta-a"] == shown
    await s3.done("PUT", "/bucket/plain", b"", x_amz_meta_a="a =?b")
    assert (await s3.ask("GET", "/bucket/plain")).headers["x-amz-meta-a"] == "a =?b"


async def test_headers_in_the_query_of_a_presigned_request_count(s3: S3Client) -> None:
    """SDKs write ``x-amz-`` headers there, so that the URL is all that its user needs."""

    async def code(query: str, body: bytes = b"x") -> str:
        answer = await s3.send(s3.presign("PUT", f"/bucket/presigned?{query}"), body)
        return "" if answer.is_success else code_of(answer)

    said = "x-amz-meta-name=caf%C3%A9&x-amz-tagging=a%3Db&x-amz-storage-class=GLACIER"
    empty = "x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32"  # of no body yet
    assert await code(f"{said}&{empty}&x-id=PutObject", b"bytes") == ""
    answer = await s3.ask("GET", "/bucket/presigned")
    assert (answer.content, answer.headers["x-amz-storage-class"]) == (b"bytes", "GLACIER")
    assert answer.headers["x-amz-meta-name"] == "=?utf-8?b?Y2Fmw6k=?="
    assert texts(await s3.done("GET", "/bucket/presigned?tagging"), "Value") == ["b"]
    assert await code("x-amz-copy-source=bucket%2Fkey", b"") == ""
    assert (await s3.ask("GET", "/bucket/presigned")).content == b"bytes"
    for query, refusal in (
        ("x-amz-acl=public-read", "AccessControlListNotSupported"),
        ("x-amz-object-lock-mode=GOVERNANCE", "NotImplemented"),
        ("x-amz-expected-bucket-owner=another", "AccessDenied"),
        ("x-amz-meta-a=b%0Ac", "MetadataTooLarge"),
    ):
        assert await code(query) == refusal
    signed_twice = s3.sign("PUT", "/bucket/presigned?x-amz-meta-a=b", b"x", x_amz_meta_a="c")
    assert code_of(await s3.send(signed_twice, b"x")) == "InvalidArgument"


async def test_a_part_with_a_checksum_of_another_kind_is_not_called_damaged(s3: S3Client) -> None:
    begun = await s3.begin("/bucket/parts", x_amz_checksum_algorithm="SHA256")
    part = new_checksum(Algorithm.CRC32)
    part.update(b"part")
    path, checksum = f"{begun}&partNumber=1", encode(part.digest())
    answer = await s3.ask("PUT", path, b"part", x_amz_checksum_crc32=checksum)
    assert code_of(answer) == "InvalidRequest"
    assert "SHA256" in answer.text
    assert (await s3.ask("PUT", path, b"part")).is_success


async def test_cors_rules_that_no_answer_can_show_are_refused(s3: S3Client) -> None:
    for more in BAD_RULES:
        document = f"<CORSConfiguration><CORSRule>{RULE}{more}</CORSRule></CORSConfiguration>"
        answer = await s3.ask("PUT", "/bucket?cors", document.encode())
        assert answer.status_code == 400, more[:40]
    assert code_of(await s3.ask("GET", "/bucket?cors")) == "NoSuchCORSConfiguration"


async def test_others_run_between_the_decisions_about_a_batch_of_deletions(s3: S3Client) -> None:
    slow = await program_with_slow_policies(s3)
    keys = deletion(*(f"{'a' * 1000}{number}" for number in range(200)))
    longest = 0.0

    async def wait_for_turns() -> None:
        nonlocal longest
        while True:
            begun = process_time()
            await asyncio.sleep(0)
            longest = max(longest, process_time() - begun)

    gc.collect()
    gc.disable()  # a look at all that other tests have left may take as long as the decisions
    try:
        waiting = asyncio.create_task(wait_for_turns())
        begun = process_time()
        await slow.done("POST", "/bucket?delete", keys)
        await asyncio.sleep(0)  # a last turn, which ends the wait for it
        waiting.cancel()
    finally:
        gc.enable()
    assert longest < (process_time() - begun) / 4


async def program_with_slow_policies(s3: S3Client) -> S3Client:
    """Return a client of another program of acme, about which a decision takes milliseconds."""

    async def make(path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        return await s3.served.make(path, body, token=s3.served.acme.program_token)

    made = await make("/v1/service-accounts", {"name": "slow"})
    key = await make(f"/v1/service-accounts/{made['id']}/access-keys", {})
    for number in range(3):
        patterns = [
            f"crn:storage:*:*:bucket/{'*a' * 5}*q{each}-{number}{'z*' * 10}" for each in range(100)
        ]
        allowed: Statement = {**allow("storage:DeleteObject"), "resources": patterns}
        policy = {"name": f"slow-{number}", "document": document(allowed)}
        policy_id = (await make("/v1/policies", policy))["id"]
        await make(f"/v1/policies/{policy_id}/attachments", {"service_account": "slow"})
    return S3Client(s3.served, key["access_key_id"], key["secret_access_key"])


async def test_buckets_are_listed_by_prefix_and_in_pages(s3: S3Client) -> None:
    for name in ("list-a", "list-b", "list-c"):
        await s3.done("PUT", f"/{name}")

    async def page(query: str) -> tuple[list[str | None], str | None]:
        root = await s3.done("GET", f"/?{query}")
        names = [each.text for each in root.iter(f"{{{NAMESPACE}}}Name")]
        token = root.find(f"{{{NAMESPACE}}}ContinuationToken")
        return names, None if token is None else token.text

    names, token = await page("prefix=list-&max-buckets=2")
    assert names == ["list-a", "list-b"]
    rest = await page(f"prefix=list-&max-buckets=2&continuation-token={token}")
    assert rest == (["list-c"], None)
    assert await page("bucket-region=elsewhere") == ([], None)
    assert len((await page(""))[0]) > 3
    assert await s3.code("GET", "/?continuation-token=!") == "InvalidArgument"


async def test_damage_that_is_found_before_the_first_byte_is_an_answer(
    s3: S3Client, tmp_path: Path
) -> None:
    await s3.done("PUT", "/bucket?cors", CORS)
    await s3.done("PUT", "/bucket/large", bytes(range(250)) * 200)
    files = (tmp_path / "data" / "buckets" / "objects").rglob("*")
    (file,) = (path for path in files if path.is_file())
    flip(file)
    answer = await s3.receive(s3.sign("GET", "/bucket/large", origin="https://a.example"))
    assert (answer.status_code, code_of(answer)) == (503, "ServiceUnavailable")
    assert "<Resource>/bucket/large</Resource>" in answer.text
    assert answer.headers["access-control-allow-origin"] == "*"


async def test_a_download_of_another_object_is_not_continued(s3: S3Client) -> None:
    """A client that has a part of one object must get all of the next (RFC 9110, 13.1.5)."""
    etag = (await s3.ask("HEAD", "/bucket/key")).headers["etag"]
    seen = (await s3.ask("HEAD", "/bucket/key")).headers["last-modified"]
    for if_range, body in (
        (etag, b"es"),
        ('"another"', b"bytes"),
        (f"W/{etag}", b"bytes"),
        (seen, b"bytes"),
        ("", b"bytes"),
    ):
        headers = {"range": "bytes=3-", "if-range": if_range}
        answer = await s3.send(s3.sign("GET", "/bucket/key", b"", "", **headers))
        assert (answer.content, answer.status_code) == (body, 206 if body == b"es" else 200)
        assert ("content-range" in answer.headers) == (body == b"es")
        path, token = "/v1/buckets/bucket/objects/key", s3.served.acme.program_token
        answer = await s3.served.ask("GET", path, token=token, headers=headers)
        assert answer.content == body, if_range
    outside = s3.sign("GET", "/bucket/key", range="bytes=9-", if_range='"another"')
    assert (await s3.send(outside)).content == b"bytes"
    answer = await s3.ask("GET", "/bucket/key", range="bytes=5-")
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */5")
    await s3.done("PUT", "/bucket/empty", b"")
    answer = await s3.ask("GET", "/bucket/empty?partNumber=1")
    assert (answer.status_code, answer.content) == (200, b"")
    assert "content-range" not in answer.headers
