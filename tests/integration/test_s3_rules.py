"""The S3 endpoint in one process with ``/v1``: signatures, bodies, parts and lists."""

from __future__ import annotations

import random
from base64 import b64encode
from hashlib import md5, sha256
from typing import Any, Final

from cloudcore.kms.chores import delete_due_keys
from cloudcore.storage.checksums import Algorithm, encode, new_checksum
from tests.databases import on_both_databases
from tests.integration.s3_client import HOST, S3Client, client_of, code_of, completion, texts, v1
from tests.integration.served_world import Served
from tests.s3_negatives import negatives
from tests.s3_operations import operations
from tests.s3_signing import framed, with_header

MIB: Final = 1 << 20
CRC: Final = "x-amz-checksum-crc32"
SIGNED: Final = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
UNSIGNED_TRAILER: Final = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


def crc32(body: bytes) -> str:
    checksum = new_checksum(Algorithm.CRC32)
    checksum.update(body)
    return encode(checksum.digest())


def writes(served: Served) -> list[str]:
    """Return what was written to the tables of storage since the list was cleared."""
    noted = [each.statement.sqlite for each in served.database.noted]
    return [each for each in noted if "storage_" in each and not each.startswith("SELECT")]


async def test_an_object_is_the_same_through_s3_and_v1(s3: S3Client) -> None:
    for key in ("a%2Fb//c/", "%2Flead", "..%2Fx", "a%2Bb%2525%3F", "%C3%A9" * 100):
        await s3.done("PUT", f"/bucket/{key}", b"through s3", x_amz_meta_a="b")
        path = f"/v1/buckets/bucket/objects/{key.replace('//', '%2F%2F').replace('/', '%2F')}"
        answer = await v1(s3, "GET", path)
        assert (answer.content, answer.headers["x-amz-meta-a"]) == (b"through s3", "b")
        await v1(s3, "PUT", path, b"through v1")
        answer = await s3.ask("GET", f"/bucket/{key}")
        assert answer.content == b"through v1"
        assert answer.headers["etag"] == f'"{md5(b"through v1").hexdigest()}"'
        await s3.done("DELETE", f"/bucket/{key}")
        assert await s3.code("GET", f"/bucket/{key}") == "NoSuchKey"
        await s3.done("DELETE", f"/bucket/{key}")


async def test_a_bucket_may_be_named_in_the_host(s3: S3Client) -> None:
    await s3.done("PUT", "/bucket/key", b"bytes")
    request = s3.sign("GET", "/key")
    assert (await s3.send(request)).status_code == 404  # the bucket ``key``
    s3.host = f"bucket.{HOST}"
    moved = with_header(request, "host", s3.host)
    assert code_of(await s3.send(moved)) == "SignatureDoesNotMatch"


async def test_no_forged_request_writes_anything(s3: S3Client) -> None:
    date, _ = s3.now()
    holes = negatives(key_id=s3.key_id, secret=s3.secret, date=date, region="local")
    assert len(holes) >= 50
    s3.served.database.noted.clear()
    for name, request in holes.items():
        answer = await s3.send(request, b"evil")
        assert answer.status_code in (400, 403, 404), name
        assert code_of(answer)
    lying = await s3.send(s3.sign("PUT", "/bucket/key", b"said"), b"evil")
    assert code_of(lying) == "XAmzContentSHA256Mismatch"
    body = framed([b"evil"], None, {CRC: crc32(b"evil")})
    chunked = {"x_amz_decoded_content_length": "4", "x_amz_trailer": CRC}
    forged = s3.sign("PUT", "/bucket/key", b"", SIGNED + "-TRAILER", **chunked)
    assert code_of(await s3.send(forged, body)) == "IncompleteBody"  # an unsigned trailer
    assert writes(s3.served) == []
    assert await s3.code("GET", "/bucket/key") == "NoSuchKey"


async def test_all_forms_of_bodies_are_taken_without_framing(s3: S3Client) -> None:
    content = bytes(range(256)) * 700
    chunks = [content[:65536], content[65536:131072], content[131072:]]
    length = {"x_amz_decoded_content_length": str(len(content)), "content_encoding": "aws-chunked"}
    trailer = {**length, "x_amz_trailer": CRC}
    _, scope = s3.now()
    trailers = {CRC: crc32(content)}

    async def put(payload: str, signs: bool, headers: dict[str, str], sent: Any) -> int:  # noqa: ANN401
        request = s3.sign("PUT", "/bucket/body", b"", payload, **headers)
        signed = dict(request.headers)
        seed = signed[b"authorization"].decode()[-64:] if signs else None
        more = {"secret": s3.secret, "date": signed[b"x-amz-date"].decode(), "scope": scope}
        return (await s3.send(request, framed(chunks, seed, sent, **more))).status_code

    for payload, signs, headers, sent in (
        (SIGNED, True, length, None),
        (SIGNED + "-TRAILER", True, trailer, trailers),
        (UNSIGNED_TRAILER, False, trailer, trailers),
    ):
        assert await put(payload, signs, headers, sent) == 200, payload
        answer = await s3.ask("GET", "/bucket/body", x_amz_checksum_mode="ENABLED")
        assert answer.content == content
        assert "content-encoding" not in answer.headers
        assert answer.headers.get(CRC) == (trailers[CRC] if sent else None)
        await s3.done("DELETE", "/bucket/body")
    assert await put(UNSIGNED_TRAILER, False, trailer, {CRC: crc32(b"other")}) == 400
    short = {**length, "x_amz_decoded_content_length": str(len(content) + 1)}
    assert await put(SIGNED, True, short, None) == 400
    assert await s3.code("GET", "/bucket/body") == "NoSuchKey"
    await s3.done("PUT", "/bucket/body", content, payload="UNSIGNED-PAYLOAD")
    assert (await s3.ask("GET", "/bucket/body")).content == content


async def test_promises_of_a_body_are_checked(s3: S3Client) -> None:
    wrong, other = b64encode(md5(b"other").digest()).decode(), crc32(b"other")
    tried: list[tuple[dict[str, str], str]] = [
        ({"content_md5": wrong}, "BadDigest"),
        ({"content_md5": "abc"}, "InvalidDigest"),
        ({"x_amz_checksum_crc32": other}, "BadDigest"),
        ({"x_amz_checksum_crc32": "!"}, "InvalidRequest"),
        ({"x_amz_checksum_crc32": other, "x_amz_checksum_sha1": "A" * 28}, "InvalidRequest"),
        ({"x_amz_trailer": CRC}, "InvalidRequest"),
        ({"x_amz_sdk_checksum_algorithm": "MD4"}, "InvalidRequest"),
        ({"x_amz_acl": "public-read"}, "AccessControlListNotSupported"),
        ({"x_amz_grant_read": "id=1"}, "AccessControlListNotSupported"),
        ({"x_amz_server_side_encryption_customer_key": "k"}, "NotImplemented"),
        ({"x_amz_server_side_encryption": "aws:kms"}, "NotImplemented"),
        ({"x_amz_object_lock_mode": "GOVERNANCE"}, "NotImplemented"),
        ({"x_amz_storage_class": "COLD"}, "InvalidStorageClass"),
        ({"x_amz_tagging": "a=1&a=2"}, "InvalidTag"),
        ({"x_amz_meta_a": "b" * 9000}, "MetadataTooLarge"),
        ({"x_amz_expected_bucket_owner": "somebody"}, "AccessDenied"),
        ({"content_length": "5368709121"}, "EntityTooLarge"),
        ({"content_length": "9"}, "IncompleteBody"),
        ({"content_length": "4x"}, "InvalidArgument"),
        (
            {"if_none_match": "*", "if_modified_since": "Fri, 24 May 2013 00:00:00 GMT"},
            "NotImplemented",
        ),
    ]
    for headers, code in tried:
        assert await s3.code("PUT", "/bucket/body", b"body", **headers) == code, headers
    length = {"x_amz_decoded_content_length": "4", "x_amz_trailer": CRC}
    for headers, trailers in (
        ({"x_amz_trailer": "x-amz-meta-a"}, {"x-amz-meta-a": "b"}),
        ({CRC.replace("-", "_"): crc32(b"body")}, {CRC: crc32(b"body")}),
        ({}, {CRC: "!"}),
    ):
        framing = framed([b"body"], None, trailers)
        request = s3.sign("PUT", "/bucket/body", b"", UNSIGNED_TRAILER, **{**length, **headers})
        assert code_of(await s3.send(request, framing)) == "InvalidRequest", trailers
    request = s3.sign("PUT", "/bucket/body", b"body")
    without = with_header(request, "transfer-encoding", "chunked")
    assert code_of(await s3.send(without, b"body")) == "MissingContentLength"
    assert await s3.code("GET", "/bucket/body") == "NoSuchKey"


async def test_parts_become_an_object(s3: S3Client) -> None:
    path = await s3.begin("/bucket/parts")
    bodies = [b"1" * (5 * MIB), b"2" * 10]
    etags = []
    for number, body in enumerate((b"replaced", *bodies), 0):
        answer = await s3.ask("PUT", f"{path}&partNumber={number or 1}", body)
        etags.append(answer.headers["etag"])
    for bad in ("&partNumber=0", *(f"&partNumber={bad}" for bad in ("10001", "abc", "", "-1")), ""):
        assert await s3.code("PUT", f"{path}{bad}", b"x") == "InvalidArgument"
    for other in (path.replace("parts", "other"), "/bucket/parts?uploadId=abc"):
        assert await s3.code("PUT", f"{other}&partNumber=1", b"x") == "NoSuchUpload"
    listed = await s3.done("GET", f"{path}&max-parts=1")
    assert (texts(listed, "Size"), texts(listed, "IsTruncated")) == ([str(5 * MIB)], ["true"])
    one, two = (1, etags[1], ""), (2, etags[2], "")
    whole = completion(one, two)
    assert await s3.code("POST", path.replace("parts", "other"), whole) == "NoSuchUpload"
    assert await s3.code("POST", path, whole, x_amz_mp_object_size="5e6") == "InvalidArgument"
    for body, code in (
        (completion(), "MalformedXML"),
        (completion(two, one), "InvalidPartOrder"),
        (completion((1, etags[0], ""), two), "InvalidPart"),
        (completion(one, (3, etags[2], "")), "InvalidPart"),
        (b"<", "MalformedXML"),
    ):
        assert await s3.code("POST", path, body) == code
    done = await s3.done("POST", path, whole)
    digests = b"".join(md5(body).digest() for body in bodies)
    etag = f'"{md5(digests).hexdigest()}-2"'
    assert texts(done, "ETag") == [etag]
    assert texts(await s3.done("POST", path, whole), "ETag") == [etag]
    answer = await s3.ask("GET", "/bucket/parts", range=f"bytes={5 * MIB - 2}-{5 * MIB + 1}")
    assert (answer.status_code, answer.content) == (206, b"1122")
    assert await s3.code("DELETE", path) == "NoSuchUpload"
    small = await s3.begin("/bucket/parts")
    tags = [
        (n, (await s3.ask("PUT", f"{small}&partNumber={n}", b"x")).headers["etag"], "")
        for n in (1, 2)
    ]
    assert await s3.code("POST", small, completion(*tags)) == "EntityTooSmall"
    await s3.done("DELETE", small)
    assert await s3.code("DELETE", small) == "NoSuchUpload"


async def test_ranges_and_conditions(s3: S3Client) -> None:
    put = await s3.ask("PUT", "/bucket/ten", b"0123456789")
    etag = put.headers["etag"]
    for asked, status, content in (
        ("bytes=2-4", 206, b"234"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=0-1,3-4", 200, b"0123456789"),
    ):
        answer = await s3.ask("GET", "/bucket/ten", range=asked)
        assert (answer.status_code, answer.content) == (status, content), asked
    answer = await s3.ask("GET", "/bucket/ten", range="bytes=10-")
    assert (answer.status_code, code_of(answer)) == (416, "InvalidRange")
    head = await s3.ask("HEAD", "/bucket/ten")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "10")
    missing = await s3.ask("HEAD", "/bucket/none")
    assert (missing.status_code, missing.content) == (404, b"")
    old, new = "Fri, 24 May 2013 00:00:00 GMT", "Fri, 24 May 2199 00:00:00 GMT"
    for headers, status in (
        ({"if_match": etag}, 200),
        ({"if_match": '"other"'}, 412),
        ({"if_none_match": etag}, 304),
        ({"if_none_match": '"other"'}, 200),
        ({"if_modified_since": new}, 304),
        ({"if_modified_since": old}, 200),
        ({"if_unmodified_since": old}, 412),
        ({"if_unmodified_since": "nonsense"}, 200),
    ):
        answer = await s3.ask("GET", "/bucket/ten", b"", **headers)
        assert answer.status_code == status, headers
        if status == 304:
            assert (answer.headers["etag"], answer.content) == (etag, b"")


async def test_lists_in_the_order_of_bytes_count_groups(s3: S3Client) -> None:
    for key in ("a", "a%2Fb", "a%2Fc", "b", "%C3%A9", "%F0%9F%98%80", "%EF%BF%BD"):
        await s3.done("PUT", f"/bucket/{key}")
    found = await s3.done("GET", "/bucket?list-type=2")
    assert texts(found, "Key") == ["a", "a/b", "a/c", "b", "é", "�", "😀"]
    page = await s3.done("GET", "/bucket?list-type=2&delimiter=%2F&max-keys=2")
    assert (texts(page, "Key"), texts(page, "Prefix")) == (["a"], ["", "a/"])
    (token,) = texts(page, "NextContinuationToken")
    page = await s3.done("GET", f"/bucket?list-type=2&delimiter=/&continuation-token={token}")
    assert (texts(page, "Key"), texts(page, "KeyCount")) == (["b", "é", "�", "😀"], ["4"])
    page = await s3.done("GET", "/bucket?marker=a%2Fb&encoding-type=url&max-keys=3")
    assert texts(page, "Key") == ["a/c", "b", "%C3%A9"]
    page = await s3.done("GET", "/bucket?delimiter=%2F&max-keys=2")
    assert texts(page, "NextMarker") == ["a/"]
    page = await s3.done("GET", "/bucket?list-type=2&start-after=b&encoding-type=url")
    assert (texts(page, "StartAfter"), texts(page, "KeyCount")) == (["b"], ["3"])
    none = await s3.done("GET", "/bucket?list-type=2&max-keys=0")
    assert (texts(none, "IsTruncated"), texts(none, "Key")) == (["false"], [])
    many = await s3.done("GET", "/bucket?max-keys=5000")
    assert texts(many, "MaxKeys") == ["1000"]
    for bad in (
        "max-keys=x",
        "max-keys=-1",
        "encoding-type=x",
        "list-type=2&continuation-token=%FF",
    ):
        assert await s3.code("GET", f"/bucket?{bad}") in ("InvalidArgument", "InvalidURI")
    assert await s3.code("GET", "/bucket?list-type=2&continuation-token=_w") == "InvalidArgument"


async def test_open_uploads_are_listed_in_pages_and_tell_their_checksum(s3: S3Client) -> None:
    paths = [await s3.begin(f"/bucket/{key}") for key in ("a%20b", "a%20b", "b")]
    first = await s3.done("GET", "/bucket?uploads&max-uploads=2&encoding-type=url")
    assert (texts(first, "Key"), texts(first, "EncodingType")) == (["a%20b", "a%20b"], ["url"])
    (key,), (upload,) = texts(first, "NextKeyMarker"), texts(first, "NextUploadIdMarker")
    assert {f"/bucket/a%20b?uploadId={each}" for each in texts(first, "UploadId")} == {*paths[:2]}
    assert (key, upload) == ("a%20b", texts(first, "UploadId")[-1])
    for marker in (f"{key}&upload-id-marker={upload}", key):
        last = await s3.done("GET", f"/bucket?uploads&key-marker={marker}")
        assert texts(last, "Key") == ["b"], marker
    for name in ("NextKeyMarker", "NextUploadIdMarker", "EncodingType"):
        assert texts(last, name) == []
    kind = {"x_amz_checksum_algorithm": "CRC32", "x_amz_checksum_type": "FULL_OBJECT"}
    parts = await s3.done("GET", await s3.begin("/bucket/c", **kind))
    assert (texts(parts, "ChecksumAlgorithm"), texts(parts, "ChecksumType")) == (
        ["CRC32"],
        ["FULL_OBJECT"],
    )


async def test_names_of_buckets(s3: S3Client) -> None:
    other = client_of(s3.served, s3.served.globex)
    assert await other.code("PUT", "/bucket") == "BucketAlreadyExists"
    assert await s3.code("PUT", "/bucket") == "BucketAlreadyOwnedByYou"
    for name in ("ab", "Upper", "1.2.3.4", "a_b", "-ab", "ab-", "a" * 64):
        assert await s3.code("PUT", f"/{name}") == "InvalidBucketName"
    where = "<{0}><LocationConstraint>{{}}</LocationConstraint></{0}>"
    where = where.format("CreateBucketConfiguration")
    body = where.format("elsewhere").encode()
    assert await s3.code("PUT", "/second", body) == "IllegalLocationConstraintException"
    await s3.done("PUT", "/second", where.format("local").encode())
    assert "second" in texts(await s3.done("GET", "/"), "Name")
    for method, target in (("GET", ""), ("PUT", "/key"), ("GET", "/key"), ("DELETE", "")):
        assert await other.code(method, f"/bucket{target}") == "NoSuchBucket"


async def test_errors_are_documents_with_the_id_of_the_request(s3: S3Client) -> None:
    answer = await s3.ask("GET", "/bucket/none")
    assert answer.headers["content-type"] == "application/xml"
    request_id = answer.headers["x-amz-request-id"]
    body = answer.content.decode()
    assert body.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchKey</Code>')
    assert f"<Resource>/bucket/none</Resource><RequestId>{request_id}</RequestId>" in body
    assert sha256(b"").hexdigest() not in body


async def test_kms_failure_is_an_error_and_never_bytes(s3: S3Client) -> None:
    key = (await v1(s3, "POST", "/v1/keys", {"name": "photos"})).json()["key"]
    await v1(s3, "PATCH", "/v1/buckets/bucket", {"kms_key": "photos"})
    await s3.done("PUT", "/bucket/sealed", b"secret bytes")
    path = f"/v1/keys/{key['id']}"

    async def check(status: int, code: str, reason: str) -> None:
        """Check reading, writing, and the start of an upload in parts, on both presentations."""
        for method, target, body in (
            ("GET", "/bucket/sealed", b""),
            ("PUT", "/bucket/sealed", b"more"),
            ("POST", "/bucket/parts?uploads", b""),
        ):
            answer = await s3.ask(method, target, body)
            assert (answer.status_code, code_of(answer)) == (status, code), (method, target)
        token = await s3.served.program_token(s3.served.acme.access_key_id, s3.served.acme.secret)
        uploads = "/v1/buckets/bucket/multipart-uploads"
        begun = await s3.served.ask("POST", uploads, {"key": "parts"}, token=token)
        assert begun.status_code == status
        assert begun.json()["error"]["params"]["reason"] == reason

    await v1(s3, "POST", f"{path}/disable")
    await check(403, "KMS.DisabledException", "kms_key_disabled")
    await v1(s3, "DELETE", f"{path}?pending_window_days=7")
    await check(403, "KMS.DisabledException", "kms_key_disabled")
    s3.served.clock.advance(8 * 24 * 3600)
    await delete_due_keys(s3.served.kms)
    await check(404, "KMS.NotFoundException", "kms_key_not_found")
    assert texts(await s3.done("GET", "/bucket?uploads"), "UploadId") == []


async def test_every_operation_has_the_bucket_that_it_needs(s3: S3Client) -> None:
    """It is given it, or finds it itself; otherwise the answer would be a failure of the server."""
    for line, _ in operations():
        method, target, *source = line.split()
        await s3.done("PUT", "/bucket/key", b"a")
        path = target.replace("/b", "/bucket", 1).replace("/k", "/key", 1)
        copy: dict[str, Any] = {"x_amz_copy_source": "/bucket/key"} if source else {}
        assert (await s3.ask(method, path, **copy)).status_code < 500, line


@on_both_databases
async def test_no_signed_request_is_a_failure_of_the_server(s3: S3Client) -> None:
    """Draw requests out of what S3 knows and what nobody should send; `send` refuses a 5xx."""
    chance = random.Random(7)
    await s3.done("PUT", "/bucket/key", b"bytes")
    paths = ["/", *(f"/{each}" for each in ("bucket", "none", "none/x"))]
    paths += [f"/bucket/{each}" for each in ("key", "none", "%F0%9F%98%80")]
    words = (
        "acl attributes cors delete location tagging uploads uploadId partNumber max-keys prefix"
        " delimiter marker list-type continuation-token start-after encoding-type key-marker"
        " upload-id-marker max-uploads max-parts part-number-marker versionId versions policy"
        " response-content-type select restore"
    )
    names = words.split()
    values = ("", "0", "1", "2", "-1", "10001", "url", "a%0Ab", "%FF", "%F0%9F%98%80", "x" * 2000)
    headers = {
        "range": ("bytes=0-1", "bytes=9-", "x"),
        "if_match": ("*", '"a"', ""),
        "if_none_match": ("*", "W/"),
        "x_amz_copy_source": (
            "/bucket/key",
            "bucket",
            "/none/k",
            "%FF/%FF",
            "bucket/key?versionId=1",
        ),
        "x_amz_copy_source_range": ("bytes=0-1", "bytes=0-99", "x", "bytes=1-0"),
        "x_amz_metadata_directive": ("REPLACE", "x"),
        "x_amz_checksum_algorithm": ("CRC32", "sha256", "x"),
        "x_amz_checksum_type": ("COMPOSITE", "FULL_OBJECT", "x"),
        "x_amz_object_attributes": ("ETag,ObjectParts", "x", ""),
        "x_amz_mp_object_size": ("1", "x"),
        "x_amz_meta_a": ("=?utf-7?Q?+2AA-?=", "=?x?", "ä"),
        "origin": ("https://a.example", "null"),
        "content_type": ("text/plain", ""),
    }
    bodies = (b"", b"<Delete/>", b"<Tagging><TagSet/></Tagging>", b"\xff", b"<a>" * 2000)
    seen = set()
    for _ in range(400):
        query = "&".join(
            f"{name}={chance.choice(values)}" for name in chance.sample(names, chance.randrange(4))
        )
        target = chance.choice(paths) + (f"?{query}" if query else "")
        chosen = chance.sample(sorted(headers), chance.randrange(3))
        given = {name: chance.choice(headers[name]) for name in chosen}
        method = chance.choice(("GET", "GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"))
        if (method, target.partition("?")[0]) == ("DELETE", "/bucket/key"):
            continue
        answer = await s3.ask(method, target, chance.choice(bodies), **given)
        seen.add(answer.status_code)
    assert {200, 204, 400, 403, 404, 405} <= seen
