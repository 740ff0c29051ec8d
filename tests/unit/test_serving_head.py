"""Request heads: what was remembered of the last head never changes what the next one means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.serving.http.head import HeadError, HeadReader, RequestHead
from cloudcore.serving.limits import ServerLimits

LINES = [
    b"GET /v2/ HTTP/1.1",
    b"HEAD /v2/a?n=1 HTTP/1.1",
    b"PUT http://a/v2/ HTTP/1.1",
    b"GET /v2/ HTTP/1.0",
    b"get /v2/ HTTP/1.1",
    b"GET /v2/ HTTP/1.2",
]
FIELDS = [
    b"Host: a",
    b"Host: b",
    b"Content-Length: 0",
    b"Content-Length: 7",
    b"Content-Length: 07",
    b"Transfer-Encoding: chunked",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Expect: 100-continue",
    b"X: 1",
    b"X:",
    b" folded",
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


def test_an_empty_list_of_expectations_expects_nothing() -> None:
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: \r\nContent-Length: 2\r\n\r\n"
    assert one(head).traits.expects_continue is False


def test_expectations_are_ignored_in_http_1_0() -> None:
    head = b"PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    assert one(head).traits.expects_continue is False
