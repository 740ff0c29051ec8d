"""Keys as tails of paths and bodies as streams, over our own server, down to the byte."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cloudcore.db.base import Database
from cloudcore.serving.asgi import UNIT_BYTES, Receive, Scope, Send
from cloudcore.serving.bodies.budget import BODIES
from cloudcore.serving.limits import ServerLimits
from tests.control_plane import Options, make_world, open_world
from tests.dying import PassingDatabase
from tests.integration.serving_app import RunningServer, serving
from tests.soak import times
from tests.thing_files import MIB, MOST, PART, Shelf, file_routes
from tests.waiting import until

THING: Final = "01890000-0000-7000-8000-0000000000AA"
FILES: Final = f"/v1/things/{THING}/files/".encode()
COUNTS: Final = f"/v1/things/{THING}/counts/".encode()
PARTS: Final = f"/v1/things/{THING}/parts/".encode()
WRITER: Final = b"Authorization: Bearer writer\r\n"
READER: Final = b"Authorization: Bearer reader\r\n"
CONTINUED: Final = b"Expect: 100-continue\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
LARGE: Final = 24 * MIB
UNBUFFERED: Final = 256 * MIB
"""More than the kernel holds of a file that a client does not read, however it is set up."""
HELD: Final = 2 * MIB
"""More than the server may hold of one body: what it reads at once, what waits to leave."""


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def server(shelf: Shelf) -> Iterator[RunningServer]:
    """Serve the family and its files; nothing here asks the database."""
    nowhere = PassingDatabase(cast("Database", None))
    world = make_world(nowhere, Options(more=file_routes(shelf)))
    world.tokens.add("reader")
    world.tokens.restrict(
        "reader", {"effect": "allow", "actions": ["test:GetThing"], "resources": ["*"]}
    )

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await world.app(cast("Any", scope), cast("Any", receive), cast("Any", send))

    limits = ServerLimits(linger_seconds=0.5, sweep_seconds=0.1)
    with serving(limits=limits, application=application) as running:
        yield running


def head(method: str, target: bytes, fields: bytes = b"", who: bytes = WRITER) -> bytes:
    return b"%s %s HTTP/1.1\r\nHost: a\r\n%s%s\r\n" % (method.encode(), target, who, fields)


def sized(count: int) -> bytes:
    return b"Content-Length: %d\r\n" % count


def error(answer: tuple[HTTPResponse, bytes]) -> tuple[int, str]:
    found: str = json.loads(answer[1])["error"]["code"]
    return answer[0].status, found


@st.composite
def spelled(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a key, and a way to write it."""
    letters = st.sampled_from("/.%-+ab ?#&=;:@~äß\u2028🐳\ufffd") | st.characters(
        exclude_categories=["Cs"], exclude_characters="\0"
    )
    key = draw(st.text(letters, min_size=1, max_size=30))
    sent = bytearray()
    for letter in key:
        if letter in "/.-+ab&=;:@~" and draw(st.booleans()):
            sent += letter.encode()
        else:
            escaped = "".join(f"%{octet:02X}" for octet in letter.encode())
            sent += (escaped if draw(st.booleans()) else escaped.lower()).encode()
    return key, bytes(sent)


@example(keys=[("a//b", b"a//b"), ("a/b", b"a%2Fb"), ("a%2Fb", b"a%252Fb"), ("/", b"/")])
@example(keys=[("dir/", b"dir%2F"), ("/lead", b"%2flead"), ("..", b".."), (".", b"%2e")])
@given(keys=st.lists(spelled(), min_size=1, max_size=4))
@settings(max_examples=times(14), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_key_comes_and_goes_byte_for_byte(
    server: RunningServer, shelf: Shelf, keys: list[tuple[str, bytes]]
) -> None:
    with server.connect() as client:
        for number, (key, sent) in enumerate(keys):
            body = b"%d" % number
            put = head("PUT", FILES + sent, sized(len(body))) + body
            answer, told = client.ask(put)
            assert answer.status == 201
            stored = json.loads(told)
            assert stored == {
                "thing_id": THING.lower(),
                "key": key,
                "size": len(body),
                "content_type": None,
                "declared": len(body),
            }
        assert {name for _, name in shelf.files} == {key for key, _ in keys}
        last = {key: b"%d" % number for number, (key, _) in enumerate(keys)}
        for key, sent in keys:
            answer, got = client.ask(head("GET", FILES + sent))
            assert (answer.status, got) == (200, last[key])
        base = f"http://127.0.0.1:{server.port}{FILES.decode()}"
        with httpx.Client(headers={"Authorization": "Bearer writer"}, verify=False) as other:
            for key, expected in last.items():
                # The client would take dots for steps, and some of the rest for its own.
                url = base + quote(key, safe="").replace(".", "%2E")
                assert other.get(url).content == expected
                assert other.delete(url).status_code == 204
                assert other.get(url).status_code == 404
    assert shelf.files == {}


def test_a_tail_that_is_no_text_is_400_behind_401_and_403(server: RunningServer) -> None:
    malformed = {"field": "key", "reason": "malformed"}
    with server.connect() as client:
        for tail in (b"%FF", b"%00", b"a%", b"%zz", b"%ED%A0%80", b"x/%C3"):
            answer = client.ask(head("GET", FILES + tail))
            assert error(answer) == (400, "INVALID_INPUT"), tail
            assert json.loads(answer[1])["error"]["params"] == malformed
            answer = client.ask(head("GET", FILES + tail, who=b""))
            assert error(answer) == (401, "UNAUTHORIZED"), tail
            answer = client.ask(head("DELETE", FILES + tail, who=READER))
            assert error(answer) == (403, "ACCESS_DENIED"), tail


def test_all_else_is_refused_as_on_other_routes(server: RunningServer) -> None:
    """An empty key is none."""
    unknown = b"/v1/things//files/a /v1/things/a%2Fb/files/a /v1/things/x/Files/a//b /v1//things"
    others = b"/v1/things/%2F /v1/things/".split()
    with server.connect() as client:
        for target in (FILES, FILES.rstrip(b"/"), *unknown.split(), *others):
            assert client.ask(head("GET", target))[0].status == 404, target
        for method, target in (("PATCH", FILES + b"a//b/"), ("OPTIONS", FILES + b"a%2Fb")):
            answer, _ = client.ask(head(method, target))
            assert (answer.status, answer.getheader("allow")) == (405, "DELETE, GET, HEAD, PUT")


def test_a_large_file_is_never_in_memory(server: RunningServer, shelf: Shelf) -> None:
    with server.connect() as client:
        client.send(head("PUT", FILES + b"large", sized(LARGE) + b"Content-Type: a/b\r\n"))
        for _ in range(LARGE // MIB):
            client.send(b"x" * MIB)
        answer, told = client.response()
        assert answer.status == 201
        assert json.loads(told)["content_type"] == "a/b"
        assert sum(shelf.units) == LARGE
        assert max(shelf.units) <= UNIT_BYTES
        assert max(shelf.kept) == 0  # nothing counts as a kept body
        client.send(head("GET", FILES + b"large"))
        answer = client.response_head()
        assert answer.getheader("content-length") == str(LARGE)
        assert answer.getheader("x-kept") == "1"
        assert answer.getheader("x-request-id") is not None
        assert client.read(LARGE) == b"x" * LARGE
        until(shelf.ended.is_set)
        assert client.ask(head("DELETE", FILES + b"large"))[0].status == 204


def test_a_body_is_read_as_fast_as_its_reader_takes_it(server: RunningServer, shelf: Shelf) -> None:
    with server.connect() as client:
        client.send(head("POST", COUNTS + b"a", CHUNKED))
        for _ in range(LARGE // MIB):
            client.send(b"100000\r\n" + b"x" * MIB + b"\r\n")
        client.send(b"0\r\n\r\n")
        answer, told = client.response()
        assert answer.status == 200
        assert json.loads(told)["size"] == LARGE == sum(shelf.units)
        assert json.loads(told)["declared"] is None
        assert max(shelf.units) < HELD
        assert max(shelf.kept) < HELD
    assert BODIES.used == 0


def test_parts_are_made_as_fast_as_the_client_takes_them(
    server: RunningServer, shelf: Shelf
) -> None:
    number = LARGE // len(PART)
    with server.connect() as client:
        for then in ("", "/sized"):
            client.send(head("GET", PARTS + f"{number}{then}".encode()))
            answer, got = client.response()
            assert answer.status == 203
            assert (answer.getheader("content-length") is not None) == bool(then)
            assert answer.getheader("etag") == '"a"'
            assert got == PART * number
            assert max(shelf.kept) < HELD
            assert client.ask(head("GET", PARTS + b"1"))[1] == PART  # on the same connection


def test_head_has_the_headers_and_reads_nothing(server: RunningServer, shelf: Shelf) -> None:
    with server.connect() as client:
        assert client.ask(head("PUT", FILES + b"a//", sized(3)) + b"abc")[0].status == 201
        for target, length in ((FILES + b"a//", "3"), (PARTS + b"2/sized", str(2 * len(PART)))):
            shelf.ended.clear()
            answer, got = client.ask(head("HEAD", target))
            assert (answer.getheader("content-length"), got) == (length, b"")
        assert shelf.kept == [0]  # of the file that was put; no part was made
        assert client.ask(head("GET", FILES + b"a//"))[1] == b"abc"


@pytest.mark.parametrize("target", [FILES + b"a", COUNTS + b"a"])
def test_a_body_that_breaks_off_is_told_to_its_reader(
    server: RunningServer, shelf: Shelf, target: bytes
) -> None:
    method = "PUT" if target.startswith(FILES) else "POST"
    with server.connect() as client:
        client.send(head(method, target, sized(LARGE)) + b"x" * MIB)
        until(lambda: bool(shelf.units))
    until(shelf.incomplete.is_set)
    assert shelf.files == {}
    until(lambda: BODIES.used == 0)  # once its reader has told us


def test_a_reader_that_leaves_ends_what_makes_the_answer(
    server: RunningServer, shelf: Shelf
) -> None:
    """After the first byte of the answer, and before it."""
    with server.connect() as client:
        client.send(head("GET", PARTS + b"1/wait"))
        client.response_head()
        until(shelf.waits.is_set)
        assert not shelf.ended.is_set()
    until(shelf.ended.is_set)
    for event in (shelf.waits, shelf.ended):
        event.clear()
    with server.connect() as client:
        client.send(head("GET", PARTS + b"0/wait"))
        until(shelf.waits.is_set)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(shelf.ended.is_set)


def test_a_client_that_only_ends_its_own_side_gets_all(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(head("GET", PARTS + b"9"))
        client.sock.shutdown(socket.SHUT_WR)
        assert client.response()[1] == PART * 9


def test_a_reader_that_leaves_amid_a_file_closes_it(server: RunningServer, shelf: Shelf) -> None:
    path = shelf.new()
    with path.open("wb") as file:
        file.truncate(UNBUFFERED)  # it has holes alone
    shelf.files[THING.lower(), "a"] = path
    with server.connect() as client:
        client.send(head("GET", FILES + b"a"))
        client.response_head()
        client.read(MIB)
    until(shelf.ended.is_set)
    until(lambda: bool(server.records))
    assert server.records[0].sent < UNBUFFERED


def test_what_may_not_come_is_refused_before_it_does(server: RunningServer, shelf: Shelf) -> None:
    for who, target, count, status in (
        (b"", FILES + b"a", LARGE, 401),
        (READER, FILES + b"a", LARGE, 403),
        (WRITER, FILES + b"%00", LARGE, 400),
        (WRITER, FILES + b"a", MOST + 1, 413),
        (WRITER, b"/v1/unasked-streams/a", LARGE, 500),
    ):
        with server.connect() as client:
            answer, told = client.ask(head("PUT", target, sized(count) + CONTINUED, who))
            assert answer.status == status  # and not 100
            assert json.loads(told)["error"]["request_id"] == answer.getheader("x-request-id")
            assert client.is_closed()  # nobody waits for the body
    assert shelf.units == []
    assert shelf.files == {}


def test_a_client_that_waits_is_invited_when_its_reader_asks(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(head("PUT", FILES + b"a", sized(3) + CONTINUED))
        assert client.line() == b"HTTP/1.1 100 Continue\r\n"
        client.line()
        client.send(b"abc")
        assert client.response()[0].status == 201


def test_a_body_longer_than_the_route_takes_is_413_where_it_shows(
    server: RunningServer, shelf: Shelf
) -> None:
    with server.connect() as client:
        client.send(head("PUT", FILES + b"a", CHUNKED))
        with suppress(ConnectionError):  # the server does not take all of it
            for _ in range(MOST // MIB + 8):
                client.send(b"100000\r\n" + b"x" * MIB + b"\r\n")
        until(lambda: bool(server.records))
    assert server.records[0].status == 413
    assert sum(shelf.units) == MOST
    assert shelf.files == {}


def test_a_failure_before_the_first_byte_is_told(server: RunningServer, shelf: Shelf) -> None:
    with server.connect() as client:
        assert error(client.ask(head("GET", PARTS + b"0/absent"))) == (404, "NOT_FOUND")
        assert error(client.ask(head("GET", PARTS + b"0/fail"))) == (500, "INTERNAL_ERROR")
        assert error(client.ask(head("GET", b"/v1/unasked-streams/a")))[0] == 500
        assert client.ask(head("GET", PARTS + b"0"))[1] == b""
    assert shelf.ended.is_set()


def test_a_failure_after_the_first_byte_cuts_the_connection(
    server: RunningServer, shelf: Shelf
) -> None:
    for then in (b"fail", b"absent"):
        with server.connect() as client:
            client.send(head("GET", PARTS + b"1/" + then))
            answer = client.response_head()
            assert answer.status == 203
            with pytest.raises((IncompleteRead, ConnectionError)):
                answer.read()
    assert shelf.ended.is_set()


async def test_another_server_gets_the_same_answers(sqlite_database: str, shelf: Shelf) -> None:
    body = b"y" * (2 * UNIT_BYTES + 1)

    async with open_world(sqlite_database, Options(more=file_routes(shelf))) as world:
        path = FILES.decode() + "%2Fa//b%2F"
        stored = (await world.ask("PUT", path, body)).json()
        assert (stored["key"], stored["size"]) == ("/a//b/", len(body))
        got, headed = await world.ask("GET", path), await world.ask("HEAD", path)
        assert (got.status_code, got.content, headed.content) == (200, body, b"")
        assert got.headers["content-length"] == headed.headers["content-length"]
        absent = await world.ask("GET", FILES.decode() + "a//b")
        assert absent.status_code == 404
    assert sum(shelf.units) == len(body)
