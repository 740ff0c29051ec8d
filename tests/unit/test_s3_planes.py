"""Which requests are the S3 endpoint's: those at its port, and those to its host."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from cloudcore.serving.http.response import refusal_response
from cloudcore.serving.planes import Headers, Planes
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
