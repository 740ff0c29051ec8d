"""boto3 with its defaults: checksums in trailers, transfers in parts, and presigned URLs.

And with buckets as subdomains of the endpoint's host name, at the port of the registry.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from hashlib import md5
from typing import Any

import httpx
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tests.clients.s3_site import HOST, Boto, S3Site, noise, s3

__all__ = ["s3"]

MIB = 1 << 20


@pytest.fixture(scope="module")
def boto(s3: S3Site) -> Boto:
    client = s3.boto()
    client.create_bucket(Bucket="photos", CreateBucketConfiguration={"LocationConstraint": "local"})
    return client


def refused(call: Callable[..., object], code: str, **arguments: object) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    response: dict[str, Any] = caught.value.response
    assert response["Error"]["Code"] == code, response
    return response


def head_algorithm(head: dict[str, Any]) -> str:
    """Return the algorithm of the checksum that an answer has."""
    (name,) = (name for name in head if name.startswith("Checksum") and name != "ChecksumType")
    return name.removeprefix("Checksum")


def test_an_object_comes_back_with_all_that_was_said_of_it(boto: Boto) -> None:
    said = {
        "CacheControl": "max-age=60",
        "ContentDisposition": 'attachment; filename="a.txt"',
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "ContentType": "text/plain",
        "Metadata": {"colour": "blue"},
    }
    put = boto.put_object(Bucket="photos", Key="said", Body=b"hello", Tagging="a=b&c=d", **said)
    got = boto.get_object(Bucket="photos", Key="said")
    assert got["Body"].read() == b"hello"
    assert {name: got[name] for name in said} == said
    assert got["TagCount"] == 2
    assert got["ETag"] == put["ETag"] == f'"{md5(b"hello").hexdigest()}"'
    assert got["ChecksumCRC32"] == put["ChecksumCRC32"]
    assert boto.get_object_tagging(Bucket="photos", Key="said")["TagSet"] == [
        {"Key": "a", "Value": "b"},
        {"Key": "c", "Value": "d"},
    ]


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_each_checksum_comes_in_a_trailer_and_is_kept(boto: Boto, algorithm: str) -> None:
    body = noise(3 * MIB + 7)
    key = f"checksum-{algorithm}"
    put = boto.put_object(
        Bucket="photos", Key=key, Body=io.BytesIO(body), ChecksumAlgorithm=algorithm
    )
    got = boto.get_object(Bucket="photos", Key=key, ChecksumMode="ENABLED")
    assert got["Body"].read() == body  # boto3 has compared the checksum
    assert got[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
    assert got["ChecksumType"] == "FULL_OBJECT"


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [(None, "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC64NVME", None), ("SHA256", None)],
)
def test_a_large_object_goes_in_parts_and_comes_in_ranges(
    boto: Boto, algorithm: str | None, kind: str | None
) -> None:
    body = noise(21 * MIB + 1)
    more = {"ChecksumAlgorithm": algorithm} if algorithm else {}
    if algorithm and kind:
        more["ChecksumType"] = kind
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    boto.upload_fileobj(io.BytesIO(body), "photos", "large", ExtraArgs=more, Config=config)
    out = io.BytesIO()
    boto.download_fileobj("photos", "large", out, Config=config)
    assert out.getvalue() == body
    head = boto.head_object(Bucket="photos", Key="large", ChecksumMode="ENABLED")
    assert head["ETag"].endswith('-5"')
    whole = head["ChecksumType"] == "FULL_OBJECT"
    assert whole == (algorithm == "CRC64NVME" or kind == "FULL_OBJECT")
    part = boto.get_object(Bucket="photos", Key="large", PartNumber=2, ChecksumMode="ENABLED")
    assert part["Body"].read() == body[5 * MIB : 10 * MIB]
    assert part["PartsCount"] == 5
    attributes = boto.get_object_attributes(
        Bucket="photos", Key="large", ObjectAttributes=["ObjectParts"], MaxParts=2
    )["ObjectParts"]
    assert (attributes["TotalPartsCount"], attributes["IsTruncated"]) == (5, True)
    name = f"Checksum{head_algorithm(head)}"
    assert [each["Size"] for each in attributes["Parts"]] == [5 * MIB, 5 * MIB]
    assert attributes["Parts"][1][name] == part[name]
    copied = boto.copy_object(
        Bucket="photos", Key="copy", CopySource={"Bucket": "photos", "Key": "large"}
    )
    assert copied["CopyObjectResult"]["ETag"] == f'"{md5(body).hexdigest()}"'
    assert boto.get_object(Bucket="photos", Key="copy")["Body"].read() == body


def test_parts_are_copied_listed_aborted(boto: Boto) -> None:
    boto.put_object(Bucket="photos", Key="source", Body=noise(6 * MIB))
    name = {"Bucket": "photos", "Key": "parts"}
    upload = boto.create_multipart_upload(**name)["UploadId"]
    copy = {**name, "UploadId": upload, "CopySource": "photos/source"}
    first = boto.upload_part_copy(**copy, PartNumber=1)["CopyPartResult"]
    second = boto.upload_part_copy(**copy, PartNumber=2, CopySourceRange="bytes=0-9")
    parts = boto.list_parts(**name, UploadId=upload)["Parts"]
    assert [(each["PartNumber"], each["Size"]) for each in parts] == [(1, 6 * MIB), (2, 10)]
    (listed,) = boto.list_multipart_uploads(Bucket="photos", Prefix="parts")["Uploads"]
    assert listed["UploadId"] == upload
    done = boto.complete_multipart_upload(
        **name,
        UploadId=upload,
        MultipartUpload={
            "Parts": [
                {"PartNumber": 1, "ETag": first["ETag"]},
                {"PartNumber": 2, "ETag": second["CopyPartResult"]["ETag"]},
            ]
        },
    )
    assert done["ETag"].endswith('-2"')
    again = boto.create_multipart_upload(**name)["UploadId"]
    boto.abort_multipart_upload(**name, UploadId=again)
    refused(boto.abort_multipart_upload, "NoSuchUpload", **name, UploadId=again)


def test_writes_and_reads_are_conditional(boto: Boto) -> None:
    name = {"Bucket": "photos", "Key": "conditional"}
    etag = boto.put_object(**name, Body=b"1", IfNoneMatch="*")["ETag"]
    refused(boto.put_object, "PreconditionFailed", **name, Body=b"2", IfNoneMatch="*")
    boto.put_object(**name, Body=b"2", IfMatch=etag)
    refused(boto.put_object, "PreconditionFailed", **name, Body=b"3", IfMatch=etag)
    refused(boto.get_object, "PreconditionFailed", **name, IfMatch=etag)
    now = boto.head_object(**name)["ETag"]
    answer = refused(boto.get_object, "304", **name, IfNoneMatch=now)
    assert answer["ResponseMetadata"]["HTTPHeaders"]["etag"] == now


def test_presigned_urls_get_and_put(boto: Boto, s3: S3Site) -> None:
    client = s3.boto(signature_version="s3v4")
    name = {"Bucket": "photos", "Key": "presigned/ä b"}
    put = client.generate_presigned_url("put_object", Params=name, ExpiresIn=60)
    get = client.generate_presigned_url(
        "get_object", Params={**name, "ResponseContentType": "text/html"}, ExpiresIn=60
    )
    with httpx.Client(verify=False, timeout=60) as http:
        assert http.put(put, content=b"by hand").status_code == 200
        answer = http.get(get)
        assert (answer.text, answer.headers["content-type"]) == ("by hand", "text/html")
        assert http.get(get + "0").status_code == 400
        assert http.get(get.replace("presigned", "other")).status_code == 403
        assert http.put(get, content=b"x").status_code == 400  # it says how to answer a GET
        plain = client.generate_presigned_url("get_object", Params=name, ExpiresIn=60)
        assert http.put(plain, content=b"x").status_code == 403
        assert http.get(get.partition("?")[0]).status_code == 403


def test_lists_group_page_and_encode(boto: Boto) -> None:
    boto.create_bucket(Bucket="lists")
    keys = ["a b", "a/1", "a/2", "c\x01d", "b", "ä/x", "😀"]
    for key in keys:
        boto.put_object(Bucket="lists", Key=key, Body=b"")
    found = boto.list_objects_v2(Bucket="lists")["Contents"]
    assert [each["Key"] for each in found] == sorted(keys, key=str.encode)
    seen: list[str] = []
    pages = boto.get_paginator("list_objects_v2").paginate(
        Bucket="lists", Delimiter="/", PaginationConfig={"PageSize": 1}
    )
    for page in pages:
        assert page["KeyCount"] == 1
        seen += [each["Key"] for each in page.get("Contents", ())]
        seen += [each["Prefix"] for each in page.get("CommonPrefixes", ())]
    assert seen == ["a b", "a/", "b", "c\x01d", "ä/", "😀"]
    first = [
        [each["Key"] for each in page.get("Contents", ())]
        for page in boto.get_paginator("list_objects").paginate(
            Bucket="lists", PaginationConfig={"PageSize": 3}
        )
    ]
    assert [key for page in first for key in page] == sorted(keys, key=str.encode)
    none = boto.list_objects_v2(Bucket="lists", MaxKeys=0)
    assert (none["KeyCount"], none["IsTruncated"]) == (0, False)
    boto.delete_object(Bucket="lists", Key="c\x01d")  # which XML cannot hold
    keys[3:4] = ["absent"]
    deleted = boto.delete_objects(
        Bucket="lists", Delete={"Objects": [{"Key": key} for key in keys]}
    )["Deleted"]
    assert {each["Key"] for each in deleted} == set(keys)
    boto.delete_bucket(Bucket="lists")
    refused(boto.head_bucket, "404", Bucket="lists")


@pytest.mark.parametrize(
    "key",
    [
        "a//b",
        "/lead",
        "trail/",
        "../up",
        "a+b",
        "a%25b",
        "a?b#c",
        "é" * 512,
        " ",
        "a\\b",
        "a&<>'\"",
    ],
)
def test_keys_survive(boto: Boto, key: str) -> None:
    boto.put_object(Bucket="photos", Key=key, Body=key.encode())
    assert boto.get_object(Bucket="photos", Key=key)["Body"].read() == key.encode()
    (listed,) = boto.list_objects_v2(Bucket="photos", Prefix=key)["Contents"]
    assert listed["Key"] == key
    boto.delete_object(Bucket="photos", Key=key)


def test_rules_of_cors_are_applied(boto: Boto, s3: S3Site) -> None:
    rule = {
        "AllowedOrigins": ["https://*.example.com"],
        "AllowedMethods": ["GET", "PUT"],
        "AllowedHeaders": ["*"],
        "ExposeHeaders": ["ETag"],
        "MaxAgeSeconds": 60,
    }
    refused(boto.get_bucket_cors, "NoSuchCORSConfiguration", Bucket="photos")
    boto.put_bucket_cors(Bucket="photos", CORSConfiguration={"CORSRules": [rule]})
    assert boto.get_bucket_cors(Bucket="photos")["CORSRules"] == [rule]
    boto.put_object(Bucket="photos", Key="page", Body=b"x")
    get = boto.generate_presigned_url("get_object", Params={"Bucket": "photos", "Key": "page"})
    origin = {"Origin": "https://app.example.com"}
    asked = {**origin, "Access-Control-Request-Method": "PUT"}
    with httpx.Client(verify=False, timeout=60) as http:
        url = get.partition("?")[0]
        preflight = http.options(url, headers={**asked, "Access-Control-Request-Headers": "x-a"})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-headers"] == "x-a"
        answer = http.get(get, headers=origin)
        assert answer.headers["access-control-allow-origin"] == origin["Origin"]
        assert answer.headers["access-control-expose-headers"] == "ETag"
        refusal = http.get(url, headers=origin)  # unsigned, but the page may read why
        assert refusal.status_code == 403
        assert refusal.headers["access-control-allow-origin"] == origin["Origin"]
        other = {**asked, "Origin": "https://example.net"}
        assert http.options(url, headers=other).status_code == 403
        boto.delete_bucket_cors(Bucket="photos")
        boto.delete_bucket_cors(Bucket="photos")
        assert http.options(url, headers=asked).status_code == 403


def test_attributes_of_an_object(boto: Boto) -> None:
    boto.put_object(Bucket="photos", Key="attributes", Body=b"12345")
    found = boto.get_object_attributes(
        Bucket="photos",
        Key="attributes",
        ObjectAttributes=["ETag", "ObjectSize", "Checksum", "StorageClass"],
    )
    assert (found["ObjectSize"], found["StorageClass"]) == (5, "STANDARD")
    assert found["ETag"] == md5(b"12345").hexdigest()
    assert "ChecksumCRC32" in found["Checksum"]


@pytest.mark.parametrize(
    ("count", "key", "code"),
    [(3000, "&" * 1015, "EntityTooLarge"), (2000, "k" * 900, "MalformedXML")],
)
def test_who_sends_too_large_a_document_is_told_so(
    s3: S3Site, boto: Boto, count: int, key: str, code: str
) -> None:
    """Clients read no answer before they have sent all."""
    one = s3.boto(max_pool_connections=1)
    keys = [{"Key": f"{key}{number}"} for number in range(count)]
    refused(one.delete_objects, code, Bucket="photos", Delete={"Objects": keys})
    deleted = one.delete_objects(Bucket="photos", Delete={"Objects": keys[:1]})
    assert deleted["Deleted"] == keys[:1]


def test_a_body_of_unknown_length_is_taken_in_chunks(boto: Boto) -> None:
    class Pipe(io.RawIOBase):
        """Readable, and neither seekable nor of a known length."""

        def __init__(self) -> None:
            self._left = [b"a" * 70_000, b"b" * 70_000]

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            return self._left.pop(0) if self._left else b""

    boto.upload_fileobj(Pipe(), "photos", "piped")
    assert len(boto.get_object(Bucket="photos", Key="piped")["Body"].read()) == 140_000


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Resolve the endpoint's names to this machine, as a wildcard of the DNS would; note them."""
    found = socket.getaddrinfo
    asked: set[str] = set()

    def resolve(host: str | None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - socket's own
        if host is not None and host.endswith(HOST):
            asked.add(host)
            host = "127.0.0.1"
        return found(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


def test_boto3_calls_buckets_by_host_name(s3: S3Site, resolved: set[str]) -> None:
    # The certificate is that of the buckets alone; their maker comes by the port of the endpoint.
    s3.boto().create_bucket(Bucket="hosted")
    port = s3.registry.port
    boto = s3.boto(f"https://{HOST}:{port}", s3={"addressing_style": "virtual"})
    body = noise(6 << 20)
    boto.put_object(Bucket="hosted", Key="a b/c+d%2F.bin", Body=body)
    assert boto.get_object(Bucket="hosted", Key="a b/c+d%2F.bin")["Body"].read() == body
    listed = boto.list_objects_v2(Bucket="hosted", Delimiter="/")
    assert [each["Prefix"] for each in listed["CommonPrefixes"]] == ["a b/"]
    assert resolved == {f"hosted.{HOST}"}
