"""Bodies, paths, methods and failures, each answered in the envelope."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple, Unpack
from uuid import UUID

import pytest

from cloudcore.threads import FairThread
from cloudcore.web import app
from cloudcore.web.app import INLINE_BYTES
from cloudcore.web.strict_json import decode
from tests.control_plane import ACCOUNT, Options, World, assert_envelope, count_rows, open_world

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MIB = 1 << 20
ABSENT = "01890000-0000-7000-8000-0000000000ff"


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (None, "body", "missing"),
        (b"[" * 100_000, "body", "too_many_values"),
        (b'{"name":"a","name":"a"}', "body", "duplicate_key"),
        (b"{}", "name", "missing"),
        (b'{"name":"a","size":11}', "size", "out_of_range"),
        (b'{"name":"a","colour":"green"}', "colour", "not_allowed"),
        (b'{"name":"a","account_id":"x"}', "account_id", "unknown_field"),
    ],
)
async def test_a_bad_body_is_400_and_says_where(
    plane: World, sqlite_database: str, body: bytes | None, field: str, reason: str
) -> None:
    error = assert_envelope(await plane.ask("POST", "/v1/things", body), 400, "INVALID_INPUT")
    assert error["params"] == {"field": field, "reason": reason}
    assert count_rows(sqlite_database, "things") == 0


@pytest.mark.parametrize(
    "headers",
    [
        [("Content-Type", "text/plain")],
        [("Content-Type", "")],
        [("Content-Type", "application/jsonx")],
        [("Content-Type", "application/x-www-form-urlencoded")],
        [("Content-Type", "application/json; charset=utf-16")],
        [("Content-Type", "application/json"), ("Content-Type", "application/json")],
        [("Content-Type", "application/json"), ("Content-Encoding", "gzip")],
    ],
)
async def test_a_body_of_another_type_is_415(
    plane: World, sqlite_database: str, headers: list[tuple[str, str]]
) -> None:
    answer = await plane.ask("POST", "/v1/things", b'{"name":"a"}', headers=headers)
    assert_envelope(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    assert count_rows(sqlite_database, "things") == 0


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON", "application/json; charset=utf-8",
     'application/json;charset="UTF-8"'],
)  # fmt: skip
async def test_json_may_name_its_charset(plane: World, content_type: str) -> None:
    headers = [("Content-Type", content_type)]
    answer = await plane.ask("POST", "/v1/things", b'{"name":"a"}', headers=headers)
    assert answer.status_code == 201


async def test_a_body_may_be_absent_where_it_is_optional(plane: World) -> None:
    made = (await plane.ask("POST", "/v1/things", {"name": "a"})).json()["thing"]["id"]
    path = f"/v1/things/{made}/parts"
    assert (await plane.ask("POST", path)).status_code == 201
    assert (await plane.ask("POST", path, {})).status_code == 201
    assert_envelope(await plane.ask("POST", path, {"x": 1}), 400, "INVALID_INPUT")


def chunked(*chunks: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return the messages of a body without a length, then those of a client that has gone."""
    messages = [{"type": "http.request", "body": each, "more_body": True} for each in chunks]
    if messages:
        messages[-1]["more_body"] = False
    messages.append({"type": "http.disconnect"})
    given = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(given)

    return receive


@pytest.mark.parametrize(
    ("headers", "chunks", "status"),
    [
        ([], [b""], 200),
        ([(b"content-length", b"0")], [b""], 200),
        ([(b"transfer-encoding", b"chunked")], [b"", b""], 200),
        ([(b"content-length", b"2")], [b"{}"], 400),
        ([(b"content-length", b"%d" % (9 * MIB))], [b" " * 9 * MIB], 400),
        ([(b"transfer-encoding", b"chunked")], [b"", b"{}", b""], 400),
        ([(b"transfer-encoding", b"chunked")], [b" " * 9 * MIB, b""], 400),
        ([(b"transfer-encoding", b"chunked")], [], 400),  # it did not arrive whole
    ],
)
async def test_only_an_empty_body_may_come_where_none_is_taken(
    plane: World, headers: list[tuple[bytes, bytes]], chunks: list[bytes], status: int
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:  # noqa: ANN401 - of ASGI
        sent.append(message)

    scope: Any = {
        "type": "http",
        "method": "GET",
        "path": "/v1/things",
        "raw_path": b"/v1/things",
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer writer"), *headers],
    }
    await plane.app(scope, chunked(*chunks), send)  # type: ignore[arg-type]
    assert sent[0]["status"] == status


async def test_a_forbidden_caller_is_told_that_before_anything_of_a_body(plane: World) -> None:
    assert_envelope(await plane.ask("GET", "/v1/things", {}, token=None), 401, "UNAUTHORIZED")


@pytest.mark.parametrize("size", [MIB + 1, 3 * MIB])
async def test_a_body_over_a_mebibyte_is_413(plane: World, size: int) -> None:
    body = b'{"name":"a"}'
    fitting = body + b" " * (MIB - len(body))
    assert (await plane.ask("POST", "/v1/things", fitting)).status_code == 201
    answer = await plane.ask("POST", "/v1/things", b" " * size)
    assert_envelope(answer, 413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    "path",
    ["/v1/nothing", "/v1", "/v1/", "/", "/v1/things/", "//v1/things", "/v1//things",
     "/v1/things%00", "/v1/Things", "/v1/things/%2e%2e/things", "/v1/things%2F"],
)  # fmt: skip
async def test_an_unknown_path_is_404(plane: World, path: str) -> None:
    for method in ("GET", "POST", "HEAD", "OPTIONS"):
        answer = await plane.ask(method, f"http://test{path}")
        if method == "HEAD":
            assert (answer.status_code, answer.content) == (404, b"")
        else:
            assert_envelope(answer, 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/things", "GET, HEAD, POST"),
        (f"/v1/things/{ABSENT}", "DELETE, GET, HEAD, PATCH"),
        (f"/v1/things/{ABSENT}/parts", "POST"),
        ("/v1/weather", "GET, HEAD"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "TRACE", "FOO"])
async def test_another_method_is_405_and_the_right_ones_are_named(
    plane: World, path: str, allow: str, method: str
) -> None:
    answer = await plane.ask(method, path)
    assert_envelope(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == allow


async def test_head_is_get_without_its_body(plane: World) -> None:
    made = (await plane.ask("POST", "/v1/things", {"name": "a"})).json()["thing"]["id"]
    for path in (f"/v1/things/{made}", f"/v1/things/{ABSENT}", "/v1/things?limit=0"):
        got, head = await plane.ask("GET", path), await plane.ask("HEAD", path)
        assert head.content == b""
        assert head.status_code == got.status_code
        for answer in (got, head):
            del answer.headers["x-request-id"]
        assert head.headers == got.headers
    assert (await plane.ask("HEAD", f"/v1/things/{made}", token=None)).status_code == 401


async def test_every_answer_has_a_request_id_of_ours(
    sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cloudcore")
    async with open_world(sqlite_database) as world:
        seen = set()
        sent = [("X-Request-Id", "theirs\x7f")]
        for method, path in [
            ("POST", "/v1/things"),
            ("GET", "/v1/things"),
            ("GET", "/v1/weather"),
            ("GET", "/v1/openapi.json"),
            ("GET", "/v1/nothing"),
            ("PUT", "/v1/things"),
            ("HEAD", "/v1/things"),
        ]:
            answer = await world.ask(method, path, headers=sent)
            (given,) = answer.headers.get_list("x-request-id")
            assert str(UUID(given)) == given
            seen.add(given)
        assert len(seen) == 7
    told = [record.getMessage() for record in caplog.records if record.name == "cloudcore.web.app"]
    assert len(told) == 7
    assert all("'theirs\\x7f'" in message for message in told)


async def test_a_failure_tells_nothing_of_itself(
    sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world(sqlite_database, Options(faulty=True)) as world:
        answer = await world.ask("GET", "/v1/broken")
        error = assert_envelope(answer, 500, "INTERNAL_ERROR")
        assert "params" not in error
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert "secret of the house" in str(record.exc_info)


async def test_absent_keeps_and_null_clears(plane: World) -> None:
    body = {"name": "a", "description": "x"}
    path = f"/v1/things/{(await plane.ask('POST', '/v1/things', body)).json()['thing']['id']}"
    for change, description in [({}, "x"), ({"description": None}, None)]:
        changed = await plane.ask("PATCH", path, change)
        assert changed.json()["thing"]["description"] == description
    renamed = await plane.ask("PATCH", path, {"name": "b"})
    error = assert_envelope(renamed, 400, "INVALID_INPUT")
    assert error["params"] == {"field": "name", "reason": "unknown_field"}


async def test_a_create_says_where_the_thing_is(plane: World) -> None:
    made = await plane.ask(
        "POST", "/v1/things", {"name": "a", "ready_at": "2027-01-15T10:00:00+02:00"}
    )
    assert made.json()["thing"]["ready_at"] == "2027-01-15T08:00:00.000000Z"
    assert (await plane.ask("GET", made.headers["location"])).json() == made.json()
    gone = await plane.ask("DELETE", made.headers["location"])
    assert (gone.status_code, gone.content) == (204, b"")


class NotingThread(FairThread):
    """Notes what is called in it, and for whom."""

    def __init__(self) -> None:
        super().__init__("noting")
        self.calls: list[tuple[object, str]] = []

    async def run(self, account_id: str, call: Callable[[Unpack[Ts]], T], /, *arguments: *Ts) -> T:
        self.calls.append((call, account_id))
        return await super().run(account_id, call, *arguments)


@pytest.mark.parametrize(
    ("size", "is_here"), [(0, True), (INLINE_BYTES, True), (INLINE_BYTES + 1, False)]
)
@pytest.mark.parametrize(("name", "status"), [(b'"a"', 201), (b"1", 400)])
async def test_a_long_body_is_decoded_in_a_thread(
    plane: World,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    is_here: bool,
    name: bytes,
    status: int,
) -> None:
    thread = NotingThread()
    monkeypatch.setattr(app, "DOCUMENTS", thread)
    body = (b'{"name":%s}' % name).ljust(size)
    assert (await plane.ask("POST", "/v1/things", body)).status_code == status
    assert (thread.calls == []) == is_here
    assert thread.calls in ([], [(decode, ACCOUNT)])
