"""What S3 clients say of parts and of the whole is compared, or refused, wherever it stands."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from hashlib import md5, sha256
from typing import Final

import httpx
import pytest

from cloudcore.storage.checksums import Algorithm, Part, combine, composite, encode, new_checksum
from cloudcore.storage.s3.signature import UNSIGNED_CHUNKS_TRAILER
from tests.integration.s3_client import S3Client, code_of, completion, texts

BODIES: Final = (b"1" * (5 << 20), b"tail")
ALGORITHMS: Final = list(Algorithm)


def digest_of(algorithm: Algorithm, body: bytes) -> bytes:
    checksum = new_checksum(algorithm)
    checksum.update(body)
    return checksum.digest()


def wrong(algorithm: Algorithm) -> str:
    return encode(bytes(algorithm.digest_bytes))


@dataclass
class Sent:
    """An upload whose parts are sent."""

    s3: S3Client
    path: str
    etags: list[str]

    def completion(self, *claims: str) -> bytes:
        """Return the document that completes it; `claims` are further elements of its parts."""
        return completion(*zip((1, 2), self.etags, [*claims, "", ""], strict=False))

    async def code(self, *claims: str, **headers: str) -> str:
        return await self.s3.code("POST", self.path, self.completion(*claims), **headers)


async def send(s3: S3Client, key: str, **headers: str) -> Sent:
    path = await s3.begin(f"/bucket/{key}", **headers)
    answers = [
        await s3.ask("PUT", f"{path}&partNumber={number}", body)
        for number, body in enumerate(BODIES, 1)
    ]
    return Sent(s3, path, [answer.headers["etag"] for answer in answers])


async def test_a_completion_of_an_upload_without_checksums(s3: S3Client) -> None:
    sent = await send(s3, "none")
    for algorithm in ALGORITHMS:
        part = f"<Checksum{algorithm}>{wrong(algorithm)}</Checksum{algorithm}>"
        code = "InvalidPart" if algorithm is Algorithm.SHA256 else "InvalidRequest"
        assert await sent.code(part) == code
        assert await sent.code("", part) == code
        header = algorithm.header.replace("-", "_")
        assert await sent.code(**{header: wrong(algorithm)}) == "InvalidRequest"
    for kind in ("COMPOSITE", "FULL_OBJECT", "other"):
        assert await sent.code(x_amz_checksum_type=kind) == "BadDigest"
    assert await sent.code(x_amz_mp_object_size="7") == "InvalidRequest"
    assert await sent.code(x_amz_checksum_sha512="AAAA") == "InvalidRequest"
    assert await sent.code("<ChecksumMD5>AAAA</ChecksumMD5>") == "InvalidRequest"
    assert await sent.code(content_md5=b64encode(md5(b"x").digest()).decode()) == "BadDigest"
    value = b64encode(sha256(BODIES[0]).digest()).decode()
    size = str(sum(map(len, BODIES)))
    body = sent.completion(f"<ChecksumSHA256>{value}</ChecksumSHA256>")
    await s3.done("POST", sent.path, body, x_amz_mp_object_size=size)
    assert await sent.code(f"<ChecksumSHA256>{value}</ChecksumSHA256>", x_amz_mp_object_size="7")


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        *((each, "COMPOSITE") for each in ALGORITHMS if each is not Algorithm.CRC64NVME),
        *((each, "FULL_OBJECT") for each in ALGORITHMS if each.is_crc),
    ],
)
async def test_a_completion_of_an_upload_with_checksums(
    s3: S3Client, algorithm: Algorithm, kind: str
) -> None:
    digests = [digest_of(algorithm, body) for body in BODIES]
    parts = [Part(digest, len(body)) for digest, body in zip(digests, BODIES, strict=True)]
    plain = encode(combine(algorithm, parts)) if kind == "FULL_OBJECT" else ""
    whole = plain or composite(algorithm, parts)
    sent = await send(s3, "key", x_amz_checksum_algorithm=algorithm, x_amz_checksum_type=kind)
    header = algorithm.header.replace("-", "_")
    name = f"Checksum{algorithm}"
    claims = [f"<{name}>{encode(digest)}</{name}>" for digest in digests]
    assert await sent.code(claims[0], claims[0]) == "InvalidPart"
    assert await sent.code(*claims, **{header: wrong(algorithm)}) == "BadDigest"
    assert await sent.code(*claims, **{header: "nonsense"}) == "InvalidRequest"
    assert await sent.code(*claims, **{header: whole.partition("-")[0] + "-3"}) == "BadDigest"
    other = {"COMPOSITE": "FULL_OBJECT", "FULL_OBJECT": "COMPOSITE"}[kind]
    assert await sent.code(*claims, x_amz_checksum_type=other) == "BadDigest"
    for foreign in ALGORITHMS:
        if foreign is not algorithm:
            part = f"<Checksum{foreign}>{wrong(foreign)}</Checksum{foreign}>"
            assert await sent.code(part) in ("InvalidPart", "InvalidRequest")
            assert await sent.code(claims[0] + part) in ("InvalidPart", "InvalidRequest")
            named = foreign.header.replace("-", "_")
            assert await sent.code(**{named: wrong(foreign)}) == "InvalidRequest"
            both = {named: wrong(foreign), header: whole}
            assert await sent.code(**both) == "InvalidRequest"
    said = {"x_amz_checksum_type": kind}
    body = sent.completion(*claims)
    for value in (whole.partition("-")[0], whole):  # the second time is a repetition
        done = await s3.done("POST", sent.path, body, **{header: value}, **said)
        assert texts(done, name) == [whole]
    assert await sent.code(*claims, **{header: wrong(algorithm)}) == "BadDigest"
    assert await sent.code(claims[0], claims[0]) == "NoSuchUpload"


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
async def test_parts_are_read_and_told_with_their_checksums(s3: S3Client, kind: str) -> None:
    sent = await send(s3, "parts", x_amz_checksum_algorithm="CRC32", x_amz_checksum_type=kind)
    await s3.done("POST", sent.path, sent.completion())
    crcs = [encode(digest_of(Algorithm.CRC32, body)) for body in BODIES]
    for number, (body, crc) in enumerate(zip(BODIES, crcs, strict=True), 1):
        for method in ("GET", "HEAD"):
            target = f"/bucket/parts?partNumber={number}"
            answer = await s3.ask(method, target, x_amz_checksum_mode="ENABLED")
            assert answer.status_code == 206
            assert answer.content == (body if method == "GET" else b"")
            assert answer.headers["content-length"] == str(len(body))
            assert answer.headers["x-amz-mp-parts-count"] == "2"
            assert answer.headers["x-amz-checksum-crc32"] == crc
            assert answer.headers["x-amz-checksum-type"] == kind
        assert "x-amz-checksum-crc32" not in (await s3.ask("GET", target)).headers
    asked = {"x_amz_object_attributes": "ObjectParts,Checksum"}
    told = await s3.done("GET", "/bucket/parts?attributes", b"", **asked)
    assert texts(told, "PartsCount") == ["2"]
    assert texts(told, "PartNumber") == ["1", "2"]
    assert texts(told, "Size") == [str(len(body)) for body in BODIES]
    assert texts(told, "ChecksumCRC32")[1:] == crcs
    assert texts(told, "IsTruncated") == ["false"]
    page = await s3.done("GET", "/bucket/parts?attributes", b"", **asked, x_amz_max_parts="1")
    assert texts(page, "NextPartNumberMarker") == ["1"]
    assert (texts(page, "PartNumber"), texts(page, "IsTruncated")) == (["1"], ["true"])
    page = await s3.done(
        "GET", "/bucket/parts?attributes", b"", **asked, x_amz_part_number_marker="1"
    )
    assert (texts(page, "PartNumber"), texts(page, "IsTruncated")) == (["2"], ["false"])
    for name in ("x_amz_max_parts", "x_amz_part_number_marker"):
        for bad in ("x", "-1", "9" * 30):
            code = await s3.code("GET", "/bucket/parts?attributes", b"", **asked, **{name: bad})
            assert code == "InvalidArgument"


async def test_the_only_part_of_an_object(s3: S3Client) -> None:
    crc = encode(digest_of(Algorithm.CRC32, b"01234"))
    await s3.done("PUT", "/bucket/five", b"01234", x_amz_checksum_crc32=crc)
    answer = await s3.ask("GET", "/bucket/five?partNumber=1", x_amz_checksum_mode="ENABLED")
    assert (answer.status_code, answer.content) == (206, b"01234")
    assert answer.headers["x-amz-checksum-crc32"] == crc
    assert "x-amz-mp-parts-count" not in answer.headers
    answer = await s3.ask("GET", "/bucket/five?partNumber=2")
    assert (answer.status_code, code_of(answer)) == (416, "InvalidPartNumber")
    told = await s3.done("GET", "/bucket/five?attributes", x_amz_object_attributes="ObjectParts")
    assert texts(told, "PartsCount") == []


async def test_the_range_of_a_copy_is_first_and_last(s3: S3Client) -> None:
    await s3.done("PUT", "/bucket/five", b"01234")
    path = f"{await s3.begin('/bucket/copy')}&partNumber=1"
    source = {"x_amz_copy_source": "bucket/five"}
    for asked in (
        *("0-2", "bytes=0", "bytes=0-", "bytes=-2", "bytes=x-y", "bytes=0-1,3-4", "bytes=3-1", ""),
        *(" bytes=0-1x", "bytes=0-" + "9" * 40),
    ):
        answer = await s3.ask("PUT", path, b"", **source, x_amz_copy_source_range=asked)
        assert (answer.status_code, code_of(answer)) == (400, "InvalidArgument"), asked
    for asked in ("bytes=0-5", "bytes=5-9"):
        answer = await s3.ask("PUT", path, b"", **source, x_amz_copy_source_range=asked)
        assert (answer.status_code, code_of(answer)) == (416, "InvalidRange"), asked
    copied = await s3.done("PUT", path, b"", **source, x_amz_copy_source_range="bytes=1-2")
    assert texts(copied, "ETag") == [f'"{md5(b"12").hexdigest()}"']


async def test_a_checksum_that_cannot_be_compared_is_refused(s3: S3Client) -> None:
    crc = encode(digest_of(Algorithm.CRC32, b"body"))
    for header in ("x_amz_checksum_sha512", "x_amz_checksum_md5", "x_amz_checksum_xxhash64"):
        assert await s3.code("PUT", "/bucket/key", b"body", **{header: "AAAA"}) == "InvalidRequest"
    both = {"x_amz_sdk_checksum_algorithm": "SHA256", "x_amz_checksum_crc32": crc}
    assert await s3.code("PUT", "/bucket/key", b"body", **both) == "BadDigest"
    await s3.done("PUT", "/bucket/key", b"body", x_amz_checksum_crc32=crc)
    copy = {"x_amz_copy_source": "bucket/key", "x_amz_checksum_crc32": crc}
    assert await s3.code("PUT", "/bucket/copy", b"", **copy) == "InvalidRequest"
    path = f"{await s3.begin('/bucket/copy')}&partNumber=1"
    assert await s3.code("PUT", path, b"", **copy) == "InvalidRequest"


async def test_what_is_claimed_of_an_empty_document_is_compared(s3: S3Client) -> None:
    await s3.done("PUT", "/bucket/key", b"body")
    wrong = {"content_md5": "AAAAAAAAAAAAAAAAAAAAAA=="}, {"x_amz_checksum_crc32": "AAAAAQ=="}
    for target in ("/bucket?acl", "/bucket/key?acl", "/another"):
        for claim in wrong:
            assert await s3.code("PUT", target, b"", **claim) == "BadDigest", (target, claim)
    right = {"content_md5": "1B2M2Y8AsgTpgAmY7PhCfg==", "x_amz_checksum_crc32": "AAAAAA=="}
    await s3.done("PUT", "/bucket/key?acl", b"", **right)
    framing = {"payload": UNSIGNED_CHUNKS_TRAILER, "x_amz_decoded_content_length": "0"}
    await s3.done("PUT", "/bucket/key?acl", b"0\r\n\r\n", **framing)


async def test_what_is_claimed_of_the_body_that_begins_an_upload_is_compared(s3: S3Client) -> None:
    """The upload has checksums of its own, of which this body is none."""
    target = "/bucket/parts?uploads"
    right = {"content_md5": "1B2M2Y8AsgTpgAmY7PhCfg==", "x_amz_checksum_crc32": "AAAAAA=="}
    for body, claim, code in (
        (b"", {"content_md5": "AAAAAAAAAAAAAAAAAAAAAA=="}, "BadDigest"),
        (b"", {"x_amz_checksum_crc32": "AAAAAQ=="}, "BadDigest"),
        (b"body", right, "BadDigest"),
        (b"", {"x_amz_checksum_crc32": "no"}, "InvalidRequest"),
        (b"", {"x_amz_checksum_md4": "AAAAAA=="}, "InvalidRequest"),
        (b"", {"content_md5": "no"}, "InvalidDigest"),
        (b"x" * 70_000, {}, "EntityTooLarge"),
    ):
        assert await s3.code("POST", target, body, **claim) == code, (body, claim)
    assert texts(await s3.done("GET", "/bucket?uploads"), "UploadId") == []
    begun = await s3.done("POST", target, b"", **right, x_amz_checksum_algorithm="SHA256")
    assert texts(begun, "UploadId")
    await s3.done("POST", target)


async def test_a_request_without_a_length_has_no_body(s3: S3Client) -> None:
    await s3.done("PUT", "/bucket/key", b"body")
    transport = httpx.ASGITransport(s3.served.app)
    for method, path in (("POST", "/bucket/parts?uploads"), ("PUT", "/bucket/key?acl")):
        headers, empty = list(s3.sign(method, path).headers), httpx.ByteStream(b"")
        sent = httpx.Request(method, f"http://{s3.host}{path}", headers=headers, stream=empty)
        assert "content-length" not in sent.headers
        async with httpx.AsyncClient(transport=transport) as client:
            answer = await client.send(sent)
        assert answer.status_code == 200, answer.text
