"""Answers as they come over one connection, and when another request may follow them."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from cloudcore.outbound.http_connection import AnswerParser, BadAnswer, HttpConnection, Unreachable

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "body", "keeps_alive"),
    [
        ([WHOLE], b"ok", True),
        ([WHOLE[:9], WHOLE[9:-1], WHOLE[-1:]], b"ok", True),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE], b"ok", True),
        ([WHOLE + WHOLE.replace(b"ok", b"no")], b"ok", False),
        ([WHOLE + b"no"], b"ok", False),
        ([WHOLE, b"no"], b"ok", False),
        ([EMPTY], b"", True),
        ([EMPTY + b"no"], b"", False),
    ],
)
def test_what_follows_an_answer_is_no_part_of_it_and_no_request_follows_that(
    pieces: list[bytes], body: bytes, keeps_alive: bool
) -> None:
    answer = AnswerParser(to_head=False)
    for piece in pieces:
        answer.feed(piece)
    assert (answer.is_done, answer.failure) == (True, None)
    assert (answer.take(), answer.take()) == (body, b"")
    assert answer.keeps_alive == keeps_alive


def test_an_answer_to_head_has_no_body() -> None:
    answer = AnswerParser(to_head=True)
    answer.feed(WHOLE)
    assert (answer.is_done, answer.take(), answer.keeps_alive) == (True, b"", False)


@pytest.mark.parametrize("data", [b"SSH-2.0\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 9])
def test_what_is_not_one_answer_is_a_failure_and_nothing_of_it_is_read(data: bytes) -> None:
    answer = AnswerParser(to_head=False)
    answer.feed(data)
    assert (type(answer.failure), answer.keeps_alive) == (BadAnswer, False)
    answer.feed(WHOLE)
    assert (answer.is_done, answer.take()) == (False, b"")


def test_bytes_that_nobody_asked_for_end_a_connection() -> None:
    connection, transport = HttpConnection(), Mock()
    connection.connection_made(transport)
    connection.data_received(WHOLE)
    transport.abort.assert_called_once_with()
    assert not connection.is_reusable


async def test_a_request_on_an_ended_connection_has_no_answer() -> None:
    connection, transport = HttpConnection(), Mock()
    connection.connection_made(transport)
    connection.connection_lost(None)
    connection.send("GET", b"GET / HTTP/1.1\r\n\r\n")
    transport.write.assert_not_called()
    with pytest.raises(Unreachable):
        await connection.head()
