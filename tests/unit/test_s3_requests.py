"""What the S3 endpoint makes of a request: plane, metadata, checksums, ranges, and long copies."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from time import thread_time
from typing import Any, Final
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.serving.http.response import refusal_response
from cloudcore.serving.planes import Headers, Planes
from cloudcore.storage.checksums import (
    Algorithm,
    Part,
    combine,
    composite,
    decode,
    encode,
    new_checksum,
)
from cloudcore.storage.conditions import parse_range
from cloudcore.storage.errors import InvalidRange, MetadataTooLarge
from cloudcore.storage.object_rows import ObjectAttributes, StoredObject
from cloudcore.storage.s3.answers import Answer, is_copy, refusal, send_when_copied, text, xml
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.object_headers import object_fields, read_attributes
from cloudcore.storage.s3.requests import bucket_of_host
from registry.composition.planes import PLANES, planes_of
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

SETTINGS = {"data": Path("x"), "s3_port": 9000, "s3_host": "s3.example"}


def owner(planes: Planes, path: bytes, host: bytes, port: int | None) -> str:
    headers: Headers = [(b"host", host)]
    return planes.planes[planes.find(path, headers, port)].name


@pytest.mark.parametrize(
    ("path", "host", "port", "plane"),
    [
        (b"/", b"registry.example", 9000, "objects"),
        (b"/v2/x", b"registry.example:9000", 9000, "objects"),
        (b"/v1/buckets", b"anything", 9000, "objects"),
        (b"/v2/x", b"s3.example", 5000, "objects"),
        (b"/key", b"Bucket.S3.example:5000", 5000, "objects"),
        (b"/key", b"bucket.s3.example.", 5000, "objects"),
        (b"/key", b"s3.example.:5000", 5000, "objects"),
        (b"/v2/x", b"registry.example", 5000, "data"),
        (b"/v1/buckets", b"registry.example", 5000, "control"),
        (b"/v1/buckets", b"xs3.example", 5000, "control"),
        (b"/", b"registry.example", None, "control"),
    ],
)
def test_a_port_or_a_host_is_of_s3(path: bytes, host: bytes, port: int, plane: str) -> None:
    assert owner(planes_of(Settings(**SETTINGS)), path, host, port) == plane  # type: ignore[arg-type]


def test_a_host_of_a_family_is_no_bucket_of_the_domain_that_it_is_in() -> None:
    settings = Settings(
        Path("x"),
        s3_host="example",
        public_url="http://one.example",
        family_hosts="pull=cr.example",
    )
    planes = planes_of(settings)
    assert owner(planes, b"/v2/x", b"CR.example:80", 5000) == "data"
    assert owner(planes, b"/v1/buckets", b"one.example", 5000) == "control"
    assert owner(planes, b"/v1/buckets", b"one.example.:5000", 5000) == "control"
    assert owner(planes, b"/v2/x", b"photos.example", 5000) == "objects"


def test_without_settings_there_is_no_s3() -> None:
    assert planes_of(Settings(data=Path("x"))).names == PLANES.names == ("data", "control")


def test_the_server_itself_refuses_in_xml_at_the_port_of_s3() -> None:
    planes = planes_of(Settings(**SETTINGS))  # type: ignore[arg-type]
    plane = planes.planes[planes.find(b"/", (), 9000)]
    answer, size = refusal_response(400, "no host", plane, request_id="1")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/xml\r\n" in head
    assert len(body) == size
    assert fromstring(body).findtext("Message") == "no host"


@pytest.mark.parametrize(
    "changes",
    [{"s3_host": "S3.example"}, {"s3_host": "a b"}, {"s3_port": 5000}, {"s3_port": 65536}],
)
def test_settings_of_s3_are_checked(changes: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="s3_"):
        Settings(data=Path("x"), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("received", "bucket"),
    [
        ("Photos.S3.example:9000", "photos"),
        ("photos.s3.example.", "photos"),
        ("a.b.s3.example.:443", "a.b"),
        ("s3.example.", ""),
        ("other.example", ""),
    ],
)
def test_a_host_below_that_of_s3_names_a_bucket(received: str, bucket: str) -> None:
    assert bucket_of_host(received, "s3.example") == bucket


NAME = "x-amz-meta-a"


def read(value: bytes) -> str:
    """Return what a header says."""
    return read_attributes({NAME: value.decode("latin-1")}, "").metadata["a"]


def shown(value: str) -> str:
    """Return the header that shows a value."""
    attributes = ObjectAttributes(metadata={"a": value})
    return dict(object_fields(StoredObject("", "", "", "key", 0, "", attributes, None, 0)))[NAME]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("日本".encode(), "日本"),
        (b"caf\xe9", "café"),
        (b"=?UTF-8?B?5pel5pys?=", "日本"),
        (b"=?utf-8?q?caf=C3=A9_au_lait?=", "café au lait"),
        (b"=?iso-8859-1?Q?caf=E9?= au =?us-ascii?q?lait?=", "café au lait"),
        (b"=?utf-8?b?5pel?= \t =?utf-8?b?5pys?=", "日本"),
        (b"=?utf-8?b?5pel5p?= =?utf-8?b?ys?=", "=?utf-8?b?5pel5p?= =?utf-8?b?ys?="),
        (b"=?utf-8?q?=E6=97?= =?UTF-8?q?=A5?=", "日"),
        (b"=?utf-8?b??=", ""),
        (b"=?utf-8?b?!!!?=", "=?utf-8?b?!!!?="),
        (b"=?utf-8?b?5pel5p?=", "=?utf-8?b?5pel5p?="),
        (b"=?utf-8?q?=FF?=", "=?utf-8?q?=FF?="),
        (b"=?utf-7?q?+AGE-?=", "=?utf-7?q?+AGE-?="),
        (b"=?utf-8?x?a?= =? ?=", "=?utf-8?x?a?= =? ?="),
    ],
)
def test_a_value_of_metadata_is_read(header: bytes, value: str) -> None:
    assert read(header) == value


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("gzip", "gzip"),
        ("aws-chunked", None),
        ("aws-chunked,deflate, gzip", "deflate, gzip"),
        ("gzip,AWS-chunked", "gzip"),
    ],
)
def test_an_encoding_is_kept_without_that_of_the_transfer(sent: str, kept: str | None) -> None:
    assert read_attributes({"content-encoding": sent}, "").headers.get("content-encoding") == kept


@given(st.text(st.characters(blacklist_categories=["Cc", "Cs"]) | st.sampled_from("=? \xa0")))
def test_every_value_of_metadata_comes_back(value: str) -> None:
    assert read(shown(value).encode("latin-1")) == value


@pytest.mark.parametrize("repeated", [b"=?x?q?a", b"=?utf-8?b?", b"=?utf-8?q?a?= ", b"=?", b" "])
def test_a_long_value_of_metadata_costs_little(repeated: bytes) -> None:
    value = b"=?utf-8?q?a?=" + repeated * (90_000 // len(repeated)) + b"b"
    begun = thread_time()
    with pytest.raises(MetadataTooLarge):
        read_attributes({"x-amz-meta-long": "x" * 8192, NAME: value.decode("latin-1")}, "")
    assert thread_time() - begun < 1


# Of "123456789", as the catalogue of CRC algorithms and RFC 3174 give them.
_CHECKS: Final = {
    Algorithm.CRC32: "cbf43926",
    Algorithm.CRC32C: "e3069283",
    Algorithm.CRC64NVME: "ae8b14860a799888",
    Algorithm.SHA1: "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
    Algorithm.SHA256: "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
}


def _of(algorithm: Algorithm, *pieces: bytes) -> bytes:
    checksum = new_checksum(algorithm)
    for piece in pieces:
        checksum.update(memoryview(bytearray(piece)))
    return checksum.digest()


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_published_check_values_are_met(algorithm: Algorithm) -> None:
    assert _of(algorithm, b"1234", b"", b"56789").hex() == _CHECKS[algorithm]


@pytest.mark.parametrize("algorithm", [each for each in Algorithm if each.is_crc])
@given(pieces=st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_the_crc_of_the_whole_comes_from_those_of_its_parts(
    algorithm: Algorithm, pieces: list[bytes]
) -> None:
    parts = [Part(_of(algorithm, piece), len(piece)) for piece in pieces]
    assert combine(algorithm, parts) == _of(algorithm, b"".join(pieces))


def test_the_checksum_of_parts_names_their_number() -> None:
    parts = [Part(_of(Algorithm.SHA256, piece), len(piece)) for piece in (b"a", b"b")]
    both = _of(Algorithm.SHA256, *(part.digest for part in parts))
    assert composite(Algorithm.SHA256, parts) == f"{encode(both)}-2"


@pytest.mark.parametrize("text", ["", "AAAA", "AAAAAA", "AAAAAA==x", "AAAAAB==", "!!!!!!==", "é"])
def test_what_is_no_checksum_is_not_decoded(text: str) -> None:
    assert decode(Algorithm.CRC32, text) is None
    assert decode(Algorithm.CRC32, "AAAAAA==") == bytes(4)


COPY: Final[dict[str, Any]] = {"method": "PUT", "headers": [(b"x-amz-copy-source", b"/a/b")]}
DONE: Final = xml("CopyObjectResult", [text("ETag", "e")])


class Client:
    """What a client gets; the copy ends when it has got some spaces."""

    def __init__(self, spaces: int) -> None:
        self.messages: list[MutableMapping[str, Any]] = []
        self._spaces = spaces
        self.may_end = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.messages.append(message)
        if self.body.count(b" ") > self._spaces:
            self.may_end.set()

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.messages)

    async def copy(self, answer: Answer) -> Answer:
        await self.may_end.wait()
        return answer


@pytest.mark.parametrize("answer", [DONE, refusal(S3Error("NoSuchKey", "none"), "/a", "1")])
async def test_spaces_come_until_the_copy_ends(answer: Answer) -> None:
    client = Client(10)
    await send_when_copied(COPY, client.send, client.copy(answer), "id", 0.0001)
    start, *_, last = client.messages
    assert (start["status"], last.get("more_body", False)) == (200, False)
    assert b"content-length" not in dict(start["headers"])
    assert isinstance(answer.body, bytes)
    assert client.body.startswith(b"<?xml")
    assert b"      <" in client.body
    assert fromstring(client.body).tag == fromstring(answer.body).tag


async def test_a_fast_copy_is_answered_as_ever() -> None:
    client = Client(0)
    client.may_end.set()
    await send_when_copied(COPY, client.send, client.copy(DONE), "id")
    assert client.body == DONE.body
    assert dict(client.messages[0]["headers"])[b"content-length"]


async def test_a_copy_ends_when_its_client_has_left() -> None:
    ended = asyncio.Event()

    async def copy() -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async def send(_: MutableMapping[str, Any]) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await send_when_copied(COPY, send, copy(), "id", 0.0001)
    assert ended.is_set()


def test_only_copies_are_kept_waiting() -> None:
    assert is_copy(COPY)
    assert not is_copy({**COPY, "headers": []})
    assert not is_copy({**COPY, "method": "GET"})


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=2-5", (2, 6)),
        ("BYTES=2-5", (2, 6)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=2-9223372036854775806", (2, 10)),  # Long.MAX_VALUE - 1, as clients in Java send
        ("bytes=2-" + "9" * 5_000, (2, 10)),
        ("bytes=-" + "9" * 5_000, (0, 10)),
        ("bytes=5-2", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        (None, None),
    ],
)
def test_a_range_is_clamped_to_the_object(
    header: str | None, expected: tuple[int, int] | None
) -> None:
    assert parse_range(header, 10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=-0", "bytes=" + "9" * 5_000 + "-"])
def test_a_range_without_a_byte_is_refused(header: str) -> None:
    with pytest.raises(InvalidRange):
        parse_range(header, 10)
