"""A head that is refused belongs to the plane of its path and host, as far as they are known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.planes import Plane, Planes
from tests.integration.serving_app import RunningServer, serving


def refusal(plane: str, status: int, message: str, request_id: str) -> bytes:
    return f"{plane} {status} {message} {request_id}".encode()


def plane_of(name: str, prefixes: tuple[bytes, ...] = (), hosts: tuple[bytes, ...] = ()) -> Plane:
    return Plane(name, partial(refusal, name), prefixes=prefixes, hosts=hosts)


PLANES: Final = Planes(
    plane_of("data", prefixes=(b"/v2",)),
    plane_of("objects", hosts=(b".s3.test",)),
    plane_of("control"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    limits = ServerLimits(linger_seconds=0.5, sweep_seconds=0.1)
    with serving(limits=limits, planes=PLANES) as running:
        yield running


@pytest.mark.parametrize(
    ("head", "plane"),
    [
        (b"GET /a HTTP/1.1\r\nHost: bucket.s3.test:80\r\nno colon\r\n\r\n", "objects"),
        (b"GET /a HTTP/1.1\r\nno colon\r\nHOST:s3.test\r\n\r\n", "objects"),
        (b"GET /a HTTP/1.1\r\nHost : s3.test\r\n\r\n", "objects"),
        (b"GET /v2/ HTTP/1.1\r\nHost: s3.test\r\nno colon\r\n\r\n", "data"),
        (b"GET /a HTTP/1.1\r\nHost: s4.test\r\nno colon\r\n\r\n", "control"),
        (b"GET /a HTTP/1.1\r\n\r\n", "control"),
        (b"GET /a HTTP/1.1\r\n\r\nHost: s3.test\r\n", "control"),
        (b"Host: s3.test\r\n\r\n", "control"),
    ],
)
def test_a_refused_head_belongs_to_a_plane(server: RunningServer, head: bytes, plane: str) -> None:
    server.records.clear()
    with server.connect() as client:
        client.send(head)
        response, body = client.response()
        assert response.status >= 400
        assert body.startswith(plane.encode())
        assert client.is_closed()
    (record,) = server.records
    assert PLANES.planes[record.plane].name == plane
