"""Requests as the server reads them: heads, the plane of each, and the messages of a body."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.serving.asgi import Message, Receive, Scope, Send
from cloudcore.serving.bodies.framing import BodyFraming, ChunkedBody, CountedBody
from cloudcore.serving.bodies.request_body import PIECE_BYTES, SocketBody
from cloudcore.serving.dispatch import Dispatcher, new_request_id
from cloudcore.serving.http import response
from cloudcore.serving.http.head import HeadError, HeadReader, RequestHead, interpret
from cloudcore.serving.http.response import HeaderNames, read_fields
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.planes import PLAIN, Plane, Planes
from registry.composition.planes import dispatcher as registry_dispatcher

LINES = [
    *(b"GET /v2/ HTTP/1.1", b"HEAD /v2/a?n=1 HTTP/1.1", b"PUT http://a/v2/ HTTP/1.1"),
    *(b"GET /v2/ HTTP/1.0", b"get /v2/ HTTP/1.1", b"GET /v2/ HTTP/1.2"),
]
FIELDS = [
    *(b"Host: a", b"Host: b", b"Content-Length: 0", b"Content-Length: 7", b"Content-Length: 07"),
    *(b"Transfer-Encoding: chunked", b"Connection: close", b"Connection: keep-alive"),
    *(b"Expect: 100-continue", b"X: 1", b"X:", b" folded"),
]
heads = st.builds(
    lambda line, fields: b"\r\n".join([line, *fields, b"", b""]),
    st.sampled_from(LINES),
    st.lists(st.sampled_from(FIELDS), max_size=5),
)


def read(reader: HeadReader, head: bytes) -> object:
    """Return everything `reader` makes of `head`, or the status of its refusal."""
    try:
        request = reader.read(head)
    except HeadError as error:
        return error.status
    return (
        request.method,
        request.http_version,
        request.path,
        request.query,
        request.headers,
        request.traits,
    )


@given(st.lists(heads, max_size=8))
def test_a_used_reader_reads_like_a_fresh_one(stream: list[bytes]) -> None:
    used = HeadReader(ServerLimits())
    for head in stream:
        assert read(used, head) == read(HeadReader(ServerLimits()), head)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    result = read(HeadReader(ServerLimits()), b"GET / HTTP/1.1\r\nHost: a\r\n" + data + b"\r\n\r\n")
    assert isinstance(result, tuple) or result in (400, 417, 431)


def one(head: bytes) -> RequestHead:
    """Read a single head."""
    return HeadReader(ServerLimits()).read(head)


def test_field_names_are_lower_case_and_values_stripped() -> None:
    request = one(b"GET / HTTP/1.1\r\nHOST: \t a \t\r\nX-Y:  1  2 \r\n\r\n")
    assert request.headers == [(b"host", b"a"), (b"x-y", b"1  2")]


def test_a_head_in_a_log_has_neither_fields_nor_a_query() -> None:
    request = one(b"GET /a?signature=secret HTTP/1.1\r\nHost: a\r\nAuthorization: secret\r\n\r\n")
    assert repr(request) == "RequestHead('GET', b'/a')"


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: Close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", False),
    ],
)
def test_persistence(head: bytes, keep_alive: bool) -> None:
    assert one(head).traits.keep_alive is keep_alive


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([(b"content-length", b"2"), (b"transfer-encoding", b"chunked")], "both Content-Length"),
        *(([(b"content-length", each)], "malformed") for each in (b"+2", b"2, 2", b"", b"0x2")),
    ],
)
def test_a_body_has_one_length_whatever_the_parser_lets_through(
    fields: list[tuple[bytes, bytes]], words: str
) -> None:
    with pytest.raises(HeadError, match=words) as refused:
        interpret("1.1", [(b"host", b"a"), *fields])
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"x a", b"b"),
        (b"x:", b"b"),
        (b"x", b"b\r\nc: d"),
        (b"content-length", b"-1"),
        (b"content-length", b"1, 1"),
    ],
)
def test_no_header_of_an_answer_begins_another_line_or_length(name: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|content-length"):
        read_fields([(b"x-a", b"b"), (name, value)], HeaderNames())


def test_an_answer_can_end_its_connection_and_few_names_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response, "MAX_KNOWN_NAMES", 1)
    names = HeaderNames()
    headers = [(b"x-a", b"b"), (b"X-B", b"c"), (b"Connection", b"Close"), (b"Content-Length", b"2")]
    assert read_fields(headers, names) == (b"x-a: b\r\nX-B: c\r\n", 2, True)
    assert list(names) == [b"x-a"]


def test_an_empty_list_of_expectations_expects_nothing() -> None:
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: \r\nContent-Length: 2\r\n\r\n"
    assert one(head).traits.expects_continue is False


def test_expectations_are_ignored_in_http_1_0() -> None:
    head = b"PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    assert one(head).traits.expects_continue is False


class Connection:
    """The socket's side: it notes whether it reads."""

    peer_closed = False

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_reading = True
        self.surplus: bytes | None = None

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def body_ended(self, surplus: bytes) -> None:
        self.surplus = surplus


def held(framing: BodyFraming, raw: bytes = b"") -> tuple[SocketBody, Connection]:
    connection = Connection()
    body = SocketBody(cast("Any", connection), framing, raw, awaits_continue=False)
    return body, connection


async def next_part(body: SocketBody) -> bytes:
    message = await body.next_message()
    assert message["type"] == "http.request"
    part: bytes = message["body"]
    assert type(part) is bytes
    return part


async def test_what_was_read_at_once_is_not_copied() -> None:
    data = bytes(PIECE_BYTES)
    body, connection = held(CountedBody(3 * PIECE_BYTES))
    for _ in range(2):
        body.feed(data)
        assert not connection.is_reading  # the rest waits in the socket
        assert await next_part(body) is data
    body.feed(data + b"next")
    assert await next_part(body) == data
    assert connection.surplus == b"next"
    assert body.received == 3 * PIECE_BYTES


@pytest.mark.parametrize("sizes", [[1, 2, 3], [PIECE_BYTES - 1, 1], [PIECE_BYTES, 7, 7]])
async def test_what_comes_in_pieces_is_one_message(sizes: list[int]) -> None:
    body, connection = held(CountedBody(sum(sizes) + 1))
    pieces = [bytes([at]) * size for at, size in enumerate(sizes, 1)]
    for piece in pieces:
        body.feed(piece)
    assert await next_part(body) == b"".join(pieces)
    assert connection.is_reading == (sum(sizes) < PIECE_BYTES)
    body.feed(b"z")
    assert await next_part(body) == b"z"


async def test_what_came_with_the_head_is_first() -> None:
    body, _ = held(CountedBody(5), b"ab")
    assert await next_part(body) == b"ab"
    body.feed(b"cde")
    assert await next_part(body) == b"cde"


async def test_chunks_are_put_together() -> None:
    body, connection = held(ChunkedBody())
    body.feed(b"1\r\na\r\n2\r\nbc\r\n")
    body.feed(b"1\r\nd\r\n0\r\n\r\n")
    assert await next_part(body) == b"abcd"
    assert connection.surplus == b""


async def test_what_follows_what_came_with_the_head_is_taken_after_it() -> None:
    body, connection = held(CountedBody(5), b"hello")
    body.feed(b"next")
    assert not connection.is_reading  # the rest waits in the socket
    assert await next_part(body) == b"hello"
    assert connection.surplus == b"next"


async def test_a_body_that_is_not_read_ends_where_it_says() -> None:
    body, _ = held(CountedBody(5), b"hello")
    body.feed(b"next")
    assert body.take_raw() == b"hellonext"


class Served:
    """Notes the scopes it is given, and takes part in the lifespan."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.events = events
        self.request_ids: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                kind = (await receive())["type"]
                self.events.append(f"{self.name} {kind}")
                await send({"type": f"{kind}.complete"})
            return
        self.events.append(self.name)
        self.request_ids.append(scope["state"]["request_id"])


async def no_receive() -> Message:
    raise AssertionError


async def no_send(message: Message) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize(
    ("raw_path", "plane"),
    [
        (b"/v2", "data"),
        (b"/v2/", "data"),
        (b"/v2/a/b/tags/list", "data"),
        (b"/v20", "control"),
        (b"/V2/", "control"),
        (b"/%762/", "control"),
        (b"//v2/", "control"),
        (b"/", "control"),
    ],
)
async def test_the_raw_path_decides(raw_path: bytes, plane: str) -> None:
    events: list[str] = []
    dispatcher = registry_dispatcher(Served("data", events), Served("control", events))
    scope: dict[str, Any] = {"type": "http", "raw_path": raw_path, "path": "/v2/", "headers": []}
    await dispatcher(scope, no_receive, no_send)
    assert events == [plane]


def refusal_body(status: int, message: str, request_id: str) -> bytes:
    raise AssertionError


BUCKETS = Planes(
    Plane("data", refusal_body, prefixes=(b"/v2",)),
    Plane("objects", refusal_body, hosts=(b".s3.cloud.test",)),
    Plane("pages", refusal_body, prefixes=(b"/console", b"/static"), hosts=(b"cloud.test",)),
    Plane("control", refusal_body),
)
"""Planes told apart by path, by host, and by both."""


@pytest.mark.parametrize(
    ("host", "path", "plane"),
    [
        (b"cloud.test", b"/v2/", "data"),
        (b"s3.cloud.test", b"/bucket/key", "objects"),
        (b"bucket.S3.cloud.test:9000", b"/console", "objects"),
        (b"xs3.cloud.test", b"/bucket/key", "control"),
        (b"cloud.test:443", b"/console/images", "pages"),
        (b"cloud.test", b"/static", "pages"),
        (b"cloud.test", b"/statics", "control"),
        (b"other.test", b"/console", "control"),
        (b"[::1]:5000", b"/console", "control"),
    ],
)
async def test_host_and_path_decide_among_any_number_of_applications(
    host: bytes, path: bytes, plane: str
) -> None:
    events: list[str] = []
    served = [Served(each.name, events) for each in BUCKETS.planes]
    scope: dict[str, Any] = {
        "type": "http",
        "raw_path": path,
        "path": path.decode(),
        "headers": [(b"accept", b"*/*"), (b"host", host)],
    }
    await Dispatcher(BUCKETS, served)(scope, no_receive, no_send)
    assert events == [plane]


def test_planes_that_share_a_name_are_counted_together() -> None:
    planes = Planes(
        Plane("control", refusal_body, prefixes=(b"/console",)),
        Plane("data", refusal_body, prefixes=(b"/v2",)),
        Plane("control", refusal_body),
    )
    assert planes.names == ("control", "data")
    found = [planes.counted_at[planes.find(path)] for path in (b"/console", b"/v2", b"/v1/a")]
    assert found == [0, 1, 0]


def test_the_last_plane_owns_the_rest() -> None:
    with pytest.raises(ValueError, match="last plane"):
        Planes(Plane("data", refusal_body, prefixes=(b"/v2",)))
    with pytest.raises(ValueError, match="one application for each"):
        Dispatcher(PLAIN, [])


async def test_every_request_gets_an_id_of_its_own() -> None:
    plane = Served("data", [])
    dispatcher = registry_dispatcher(plane, plane)
    for _ in range(50):
        scope: dict[str, Any] = {
            "type": "http",
            "path": "/v2/",
            "headers": [],
            "state": {"shared": 1},
        }
        await dispatcher(scope, no_receive, no_send)
        assert scope["state"]["shared"] == 1
    assert len(set(plane.request_ids)) == 50


def test_request_ids_are_random_uuids() -> None:
    for _ in range(200):
        request_id = new_request_id()
        parsed = uuid.UUID(request_id)
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)
        assert str(parsed) == request_id


async def live(dispatcher: Dispatcher, events: list[str]) -> None:
    """Run a whole lifespan."""
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Message:
        return {"type": next(messages)}

    async def send(message: Message) -> None:
        events.append(message["type"])

    await dispatcher({"type": "lifespan"}, receive, send)


async def test_the_data_plane_lives_longer_than_the_control_plane() -> None:
    events: list[str] = []

    async def startup() -> None:
        events.append("startup")

    async def shutdown() -> None:
        events.append("shutdown")

    plane = Served("control", events)
    await live(registry_dispatcher(plane, plane, startup=startup, shutdown=shutdown), events)
    assert events == [
        *("startup", "control lifespan.startup", "lifespan.startup.complete"),
        *("control lifespan.shutdown", "shutdown", "lifespan.shutdown.complete"),
    ]


async def test_a_control_plane_that_fails_to_start_shuts_the_data_plane_down() -> None:
    events: list[str] = []

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    async def shutdown() -> None:
        events.append("shutdown")

    await live(registry_dispatcher(failing, failing, shutdown=shutdown), events)
    assert events == ["shutdown", "lifespan.startup.failed"]


async def test_a_data_plane_that_fails_to_start_is_not_hidden() -> None:
    async def startup() -> None:
        raise LookupError("no database")

    events: list[str] = []
    with pytest.raises(LookupError):
        await live(
            registry_dispatcher(Served("data", []), Served("control", events), startup=startup),
            events,
        )
    assert events == []
