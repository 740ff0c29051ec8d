"""Answers of /v1: errors in another shape below a path, streams, and no body where none belongs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, cast

import httpx
import pytest
from litestar import Request, get, post
from litestar.params import JSONBody
from msgspec import Struct, defstruct

from cloudcore.error_codes import status_and_code
from cloudcore.errors import InvalidInput, PlatformError
from cloudcore.serving.asgi import Message
from cloudcore.web.app import ControlPlane, Routes
from cloudcore.web.envelope import ENVELOPE, ErrorShape
from cloudcore.web.openapi import document
from cloudcore.web.request_state import RequestState
from cloudcore.web.route_spec import RouteError
from cloudcore.web.streams import StreamReply
from cloudcore.wire import ResponseBody
from tests.things import Weather


class Terse(ResponseBody):
    error: str


OTHER = defstruct("Terse", [("reason", str)], bases=(ResponseBody,), module="elsewhere")


class SignIn(Struct):
    grant: str


def terse(error: PlatformError, request_id: str) -> tuple[int, Terse]:
    status, code = status_and_code(type(error))
    return status, Terse(error=code.lower())


@post(
    "/v1/terse/token",
    status_code=200,
    opt={"action": None, "public": True, "form": SignIn},
    request_max_body_size=10,
)
async def sign_in(request: Request[Any, Any, Any]) -> Weather:
    """Read a form."""
    if await request.body() != b"grant=x":
        raise InvalidInput("not this grant")
    return Weather(is_fine=True)


@post("/v1/plain", opt={"action": None, "public": True})
async def plain(data: JSONBody[Weather]) -> Weather:
    """Read a body."""
    return data


PLAIN = plain


def app() -> ControlPlane:
    return ControlPlane(Routes([sign_in, plain], {"/v1/terse/": ErrorShape(terse, Terse)}))


def ask(method: str, path: str, content: bytes = b"") -> httpx.Response:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(cast("Any", app()))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, content=content)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "error"),
    [
        ("POST", "/v1/terse/token", b"grant=y", 400, "invalid_input"),
        ("POST", "/v1/terse/token", b"grant=y&more=z", 413, "payload_too_large"),
        ("GET", "/v1/terse/token", b"", 405, "method_not_allowed"),
        ("GET", "/v1/terse/nothing", b"", 404, "not_found"),
    ],
)
def test_errors_below_a_path_have_its_shape(
    method: str, path: str, content: bytes, status: int, error: str
) -> None:
    answer = ask(method, path, content)
    assert (answer.status_code, answer.json()) == (status, {"error": error})
    assert answer.headers["x-request-id"]


def test_errors_elsewhere_keep_the_envelope() -> None:
    assert ask("GET", "/v1/terse").json()["error"]["code"] == "NOT_FOUND"
    assert ask("POST", "/v1/terse/token", b"grant=x").json() == {"is_fine": True}


def test_the_description_knows_forms_and_shapes() -> None:
    described = ask("GET", "/v1/openapi.json").json()
    operation = described["paths"]["/v1/terse/token"]["post"]
    (media_type,) = operation["requestBody"]["content"]
    assert media_type == "application/x-www-form-urlencoded"
    assert set(operation["responses"]) == {"200", "400", "413", "500", "503"}
    shapes = {
        path: described["paths"][path]["post"]["responses"]["400"]["content"]["application/json"]
        for path in ("/v1/terse/token", "/v1/plain")
    }
    assert shapes["/v1/terse/token"]["schema"] == {"$ref": "#/components/schemas/Terse"}
    assert shapes["/v1/plain"]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_two_operations_of_one_name_are_refused() -> None:
    @get("/v1/elsewhere", name="other", opt={"action": None, "public": True})
    async def plain() -> None:
        """Bear another's name."""

    with pytest.raises(RouteError, match="has its name"):
        ControlPlane(Routes([PLAIN, plain]))


def test_two_shapes_of_one_name_are_refused() -> None:
    """They would be told apart by their modules, which generators make nothing of."""

    @get("/v1/elsewhere", opt={"action": None, "public": True})
    async def elsewhere() -> OTHER:  # type: ignore[valid-type]
        """Answer in the other shape."""

    made = ControlPlane(Routes([elsewhere], {"/v1/terse/": ErrorShape(terse, Terse)}))
    with pytest.raises(RouteError, match="two shapes share a name"):
        document(made.routes[:1], {"": ErrorShape(terse, Terse)}, ENVELOPE)


def test_a_client_that_leaves_in_the_middle_is_no_failure_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start, _ = call_asgi(
        "POST",
        "/v1/plain",
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    )
    assert start["status"] == 400
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_no_body_follows_a_head() -> None:
    """Asked for over ASGI itself: clients drop the body of an answer to HEAD."""
    start, *bodies = call_asgi("HEAD", "/v1/openapi.json")
    assert start["status"] == 200
    assert int(dict(start["headers"])[b"content-length"]) > 0
    assert b"".join(body["body"] for body in bodies) == b""


def call_asgi(method: str, path: str, *received: dict[str, Any]) -> list[Any]:
    """Speak ASGI with the application and return the messages it sends."""
    messages = iter(received)
    sent: list[Any] = []

    async def receive() -> Any:  # noqa: ANN401 - a message
        return next(messages)

    async def send(message: Any) -> None:  # noqa: ANN401 - a message
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
    }
    asyncio.run(app()(cast("Any", scope), receive, send))
    return sent


class Bug(Exception):
    pass


async def failing_at_its_end() -> AsyncGenerator[bytes, None]:
    try:
        yield b"part"
    finally:
        raise Bug


async def test_a_reply_is_closed_also_if_its_generator_fails_to_end() -> None:
    """The client leaves amid the stream, and the generator fails as it is closed."""
    closed: list[bool] = []
    scope: Any = {"type": "http", "method": "GET", "state": {}}

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionError

    RequestState(scope, cast("Any", receive), cast("Any", send), "id")
    reply = StreamReply(failing_at_its_end(), close=lambda: closed.append(True))
    with pytest.raises(Bug):
        await reply(scope, cast("Any", receive), cast("Any", send))
    assert closed == [True]
