"""Bodies, paths, methods and failures, each answered in the envelope."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack
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


BAD_BODIES: Final[tuple[tuple[bytes | None, str, str], ...]] = (
    (None, "body", "missing"),
    (b"[" * 100_000, "body", "too_many_values"),
    (b'{"name":"a","name":"a"}', "body", "duplicate_key"),
    (b"{}", "name", "missing"),
    (b'{"name":"a","size":11}', "size", "out_of_range"),
    (b'{"name":"a","colour":"green"}', "colour", "not_allowed"),
    (b'{"name":"a","account_id":"x"}', "account_id", "unknown_field"),
)


async def test_a_bad_body_is_400_and_says_where(plane: World, sqlite_database: str) -> None:
    for body, field, reason in BAD_BODIES:
        answer = await plane.ask("POST", "/v1/things", body)
        error = assert_envelope(answer, 400, "INVALID_INPUT", about=reason)
        assert error["params"] == {"field": field, "reason": reason}
    assert count_rows(sqlite_database, "things") == 0


async def test_a_body_is_json_in_utf_8_and_nothing_else(plane: World, sqlite_database: str) -> None:
    encoded = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
    others = ("text/plain", "", "application/jsonx", "application/x-www-form-urlencoded")
    types = [[("Content-Type", each)] for each in (*others, "application/json; charset=utf-16")]
    for headers in (*types, [encoded[0]] * 2, encoded):
        answer = await plane.ask("POST", "/v1/things", b'{"name":"a"}', headers=headers)
        assert_envelope(answer, 415, "UNSUPPORTED_MEDIA_TYPE", about=headers)
    assert count_rows(sqlite_database, "things") == 0
    for name, parameter in (("a", ""), ("b", "; charset=utf-8"), ("c", ';charset="UTF-8"')):
        headers = [("Content-Type", f"Application/JSON{parameter}")]
        answer = await plane.ask("POST", "/v1/things", {"name": name}, headers=headers)
        assert answer.status_code == 201, headers


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


_CHUNKED: Final = [(b"transfer-encoding", b"chunked")]
EMPTY_OR_NOT: Final[tuple[tuple[list[tuple[bytes, bytes]], list[bytes], int], ...]] = (
    ([], [b""], 200),
    ([(b"content-length", b"0")], [b""], 200),
    (_CHUNKED, [b"", b""], 200),
    ([(b"content-length", b"2")], [b"{}"], 400),
    ([(b"content-length", b"%d" % (9 * MIB))], [b" " * 9 * MIB], 400),
    (_CHUNKED, [b"", b"{}", b""], 400),
    (_CHUNKED, [b" " * 9 * MIB, b""], 400),
    (_CHUNKED, [], 400),  # it did not arrive whole
)


async def test_only_an_empty_body_may_come_where_none_is_taken(plane: World) -> None:
    for headers, chunks, status in EMPTY_OR_NOT:
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:  # noqa: ANN401 - of ASGI
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
        assert sent[0]["status"] == status, headers


async def test_a_body_over_a_mebibyte_is_413(plane: World) -> None:
    body = b'{"name":"a"}'
    fitting = body + b" " * (MIB - len(body))
    assert (await plane.ask("POST", "/v1/things", fitting)).status_code == 201
    for size in (MIB + 1, 3 * MIB):
        answer = await plane.ask("POST", "/v1/things", b" " * size)
        assert_envelope(answer, 413, "PAYLOAD_TOO_LARGE", about=size)


async def test_an_unknown_path_is_404(plane: World) -> None:
    unknown = "/v1/nothing /v1 /v1/ / /v1/things/ //v1/things /v1//things /v1/things%00 /v1/Things"
    for path in (*unknown.split(), "/v1/things/%2e%2e/things", "/v1/things%2F"):
        for method in ("GET", "POST", "OPTIONS"):
            answer = await plane.ask(method, f"http://test{path}")
            assert_envelope(answer, 404, "NOT_FOUND", about=(method, path))
        answer = await plane.ask("HEAD", f"http://test{path}")
        assert (answer.status_code, answer.content) == (404, b""), path


async def test_another_method_is_405_and_the_right_ones_are_named(plane: World) -> None:
    for path, allow in (
        ("/v1/things", "GET, HEAD, POST"),
        (f"/v1/things/{ABSENT}", "DELETE, GET, HEAD, PATCH"),
        (f"/v1/things/{ABSENT}/parts", "POST"),
        ("/v1/weather", "GET, HEAD"),
    ):
        for method in ("PUT", "OPTIONS", "TRACE", "FOO"):
            answer = await plane.ask(method, path)
            assert_envelope(answer, 405, "METHOD_NOT_ALLOWED", about=(method, path))
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
    plane: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cloudcore")
    seen = set()
    for method, path in (
        *[("POST", "/v1/things"), ("GET", "/v1/things"), ("PUT", "/v1/things")],
        *[("HEAD", "/v1/things"), ("GET", "/v1/weather"), ("GET", "/v1/openapi.json")],
        ("GET", "/v1/nothing"),
    ):
        answer = await plane.ask(method, path, headers=[("X-Request-Id", "theirs\x7f")])
        (given,) = answer.headers.get_list("x-request-id")
        assert str(UUID(given)) == given
        seen.add(given)
    told = [record.getMessage() for record in caplog.records if record.name == "cloudcore.web.app"]
    assert len(seen) == len(told) == 7
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


async def test_a_thing_is_made_changed_and_deleted_where_the_answer_says(plane: World) -> None:
    """What is absent from a change is kept, and null clears it."""
    body = {"name": "a", "description": "x", "ready_at": "2027-01-15T10:00:00+02:00"}
    made = await plane.ask("POST", "/v1/things", body)
    path = made.headers["location"]
    assert made.json()["thing"]["ready_at"] == "2027-01-15T08:00:00.000000Z"
    assert (await plane.ask("GET", path)).json() == made.json()
    for change, description in [({}, "x"), ({"description": None}, None)]:
        changed = await plane.ask("PATCH", path, change)
        assert changed.json()["thing"]["description"] == description
    error = assert_envelope(await plane.ask("PATCH", path, {"name": "b"}), 400, "INVALID_INPUT")
    assert error["params"] == {"field": "name", "reason": "unknown_field"}
    gone = await plane.ask("DELETE", path)
    assert (gone.status_code, gone.content) == (204, b"")


class NotingThread(FairThread):
    """Notes what is called in it, and for whom."""

    def __init__(self) -> None:
        super().__init__("noting")
        self.calls: list[tuple[object, str]] = []

    async def run(self, account_id: str, call: Callable[[Unpack[Ts]], T], /, *arguments: *Ts) -> T:
        self.calls.append((call, account_id))
        return await super().run(account_id, call, *arguments)


async def test_a_long_body_is_decoded_in_a_thread(
    plane: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (size, is_here) in enumerate(
        [(0, True), (INLINE_BYTES, True), (INLINE_BYTES + 1, False)]
    ):
        for name, status in ((b'"%c"' % (97 + number), 201), (b"1", 400)):
            thread = NotingThread()
            monkeypatch.setattr(app, "DOCUMENTS", thread)
            body = (b'{"name":%s}' % name).ljust(size)
            assert (await plane.ask("POST", "/v1/things", body)).status_code == status
            assert thread.calls == ([] if is_here else [(decode, ACCOUNT)])
