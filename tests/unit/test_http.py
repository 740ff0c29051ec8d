"""The control plane's glue: whatever goes wrong is told in one envelope."""

from __future__ import annotations

import logging
from typing import Any, NoReturn, cast
from unittest.mock import Mock
from uuid import UUID

import httpx
import pytest
from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from litestar.testing import TestClient

from cloudcore import errors
from cloudcore.web.app import ControlPlane, Routes

PUBLIC = {"action": None, "public": True}


@get("/conflict", opt=PUBLIC, sync_to_thread=False)
def conflict() -> NoReturn:
    raise errors.Conflict("it is there already", name="a")


@get("/busy", opt=PUBLIC, sync_to_thread=False)
def busy() -> NoReturn:
    raise errors.Unavailable("not now", retry_after=7)


@get("/bug", opt=PUBLIC, sync_to_thread=False)
def bug() -> NoReturn:
    raise RuntimeError("secret")


@post("/number", opt=PUBLIC, sync_to_thread=False, request_max_body_size=100)
def number(data: JSONBody[dict[str, int]]) -> dict[str, int]:
    return data


HANDLERS: list[HTTPRouteHandler] = [conflict, busy, bug, number]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/conflict", b"", 409, "CONFLICT"),
        ("GET", "/busy", b"", 503, "SERVICE_UNAVAILABLE"),
        ("GET", "/nowhere", b"", 404, "NOT_FOUND"),
        ("GET", "/number", b"", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/number", b"{", 400, "INVALID_INPUT"),
        ("POST", "/number", b'{"a":' + b"1" * 200 + b"}", 413, "PAYLOAD_TOO_LARGE"),
    ],
)
def test_a_refusal_comes_in_the_envelope(
    method: str, path: str, body: bytes, status: int, code: str
) -> None:
    with TestClient(ControlPlane(Routes(HANDLERS))) as client:
        answer = client.request(method, path, content=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["code"] == code
    assert error["message"]
    assert str(UUID(error["request_id"])) == error["request_id"]
    assert answer.headers["x-request-id"] == error["request_id"]


async def test_a_request_takes_no_random_bytes_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call would hand the interpreter to another thread, such as the one that writes."""
    plane = cast("Any", ControlPlane(Routes(HANDLERS)))
    transport = httpx.ASGITransport(plane)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        await client.get("/busy")  # what is made once
        urandom = Mock(side_effect=bytes)
        monkeypatch.setattr("os.urandom", urandom)
        answer = await client.get("/busy")
        monkeypatch.undo()
    assert UUID(answer.headers["x-request-id"]).version == 4
    urandom.assert_not_called()


def test_headers_say_when_and_how_to_try_again() -> None:
    with TestClient(ControlPlane(Routes(HANDLERS))) as client:
        assert client.get("/busy").headers["retry-after"] == "7"
        assert "POST" in client.get("/number").headers["allow"]


def test_a_bug_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with TestClient(ControlPlane(Routes(HANDLERS))) as client:
        answer = client.get("/bug")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "INTERNAL_ERROR"
    assert "secret" not in answer.text
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info is not None
    assert "secret" in str(record.exc_info[1])
