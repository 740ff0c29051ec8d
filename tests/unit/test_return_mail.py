"""A mail is read to the line with a dot alone, wherever it is cut on its way."""

from __future__ import annotations

import asyncio

import pytest

from cloudcore.email.bounces.mail_server import read_mail
from cloudcore.email.bounces.reports import MOST_BYTES

LIMIT = 1001


async def read(*chunks: bytes) -> tuple[bytes, int, bytes]:
    """Read a mail that comes in these chunks; return also what is left behind it."""
    reader = asyncio.StreamReader(limit=LIMIT)
    reading = asyncio.create_task(read_mail(reader))
    for chunk in chunks:
        reader.feed_data(chunk)
        for _ in range(3):  # until it has read all that is there
            await asyncio.sleep(0)
    kept, count = await asyncio.wait_for(reading, 5)
    reader.feed_eof()
    return kept, count, await reader.read()


async def test_a_dot_before_others_is_taken_away() -> None:
    mail = b"a\r\n..b\r\n.c\r\nd.\r\n\n.\n\r\n.\r\nQUIT\r\n"
    assert await read(mail) == (b"a\r\n.b\r\nc\r\nd.\r\n\n.\n\r\n", 21, b"QUIT\r\n")
    assert await read(*(mail[at : at + 1] for at in range(len(mail)))) == await read(mail)


@pytest.mark.parametrize("tail", [b"", b"."])
async def test_a_long_line_that_comes_in_pieces_ends_no_mail(tail: bytes) -> None:
    for length in (LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT):
        line = b"x" * length + tail
        kept, _, left = await read(line, b"\r\n", b"y\r\n.\r\n")
        assert (kept, left) == (line + b"\r\ny\r\n", b"")


async def test_only_the_start_of_a_large_mail_is_kept() -> None:
    line = b"x" * 998 + b"\r\n"
    kept, count, _ = await read(*[line] * 300, b".\r\n")
    assert (kept, count) == ((line * 300)[:MOST_BYTES], 300_000)
