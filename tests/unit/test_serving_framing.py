"""The body decoders: any splitting gives the same content; malformed streams are refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.serving.bodies.framing import (
    MAX_LINE_BYTES,
    BodyFraming,
    ChunkedBody,
    CountedBody,
    FramingError,
)

EXTENSIONS = st.sampled_from([b"", b";a", b" ; a=b", b';q="x y"', b";a=1;b=2"])
TRAILERS = st.sampled_from([b"", b"Expires: never\r\n", b"a: 1\r\nb:\r\n"])


@st.composite
def chunked_streams(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Draw a valid chunked stream and its content."""
    stream = content = b""
    for chunk in draw(st.lists(st.binary(min_size=1, max_size=300), max_size=6)):
        form = draw(st.sampled_from([b"%x", b"%X", b"000%x"]))
        stream += form % len(chunk) + draw(EXTENSIONS) + b"\r\n" + chunk + b"\r\n"
        content += chunk
    return stream + b"0" + draw(EXTENSIONS) + b"\r\n" + draw(TRAILERS) + b"\r\n", content


def decode(framing: BodyFraming, pieces: list[bytes]) -> tuple[bytes, bytes]:
    """Return the content found in `pieces`, and what is left behind its end."""
    content = bytearray()
    rest = b""
    for piece in pieces:
        used = framing.feed(piece, len(piece), content.extend)
        rest += piece[used:]
    return bytes(content), rest


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `data` at the given places (taken modulo its length)."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:stop] for start, stop in itertools.pairwise(places)]


@given(chunked_streams(), st.lists(st.integers(0, 5000), max_size=20), st.binary(max_size=50))
def test_any_splitting_of_a_chunked_stream_gives_its_content(
    stream: tuple[bytes, bytes], cuts: list[int], surplus: bytes
) -> None:
    encoded, content = stream
    framing = ChunkedBody()
    assert decode(framing, split(encoded + surplus, cuts)) == (content, surplus)
    assert framing.complete


@given(chunked_streams(), st.data())
def test_a_truncated_chunked_stream_is_not_complete(
    stream: tuple[bytes, bytes], data: st.DataObject
) -> None:
    encoded, content = stream
    end = data.draw(st.integers(0, len(encoded) - 1))
    framing = ChunkedBody()
    found, rest = decode(framing, [encoded[:end]])
    assert not framing.complete
    assert content.startswith(found)
    assert not rest


@given(st.binary(max_size=400), st.lists(st.integers(0, 500), max_size=8), st.binary(max_size=9))
def test_any_splitting_of_a_counted_body_gives_its_content(
    content: bytes, cuts: list[int], surplus: bytes
) -> None:
    framing = CountedBody(len(content))
    assert decode(framing, split(content + surplus, cuts)) == (content, surplus)
    assert framing.complete


MALFORMED = {
    "bare LF after the size": b"3\nabc\r\n0\r\n\r\n",
    "bare LF after the content": b"3\r\nabc\n0\r\n\r\n",
    "bare LF at the end": b"0\r\n\n",
    "CR in the size line": b"3\r\r\nabc\r\n0\r\n\r\n",
    "content longer than its size": b"3\r\nabcd\r\n0\r\n\r\n",
    "content shorter than its size": b"4\r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc\r\n",
    "extension without size": b";a\r\n",
    "sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "underscore": b"1_0\r\n",
    "leading space": b" 3\r\nabc\r\n0\r\n\r\n",
    "trailing space": b"3 \r\nabc\r\n0\r\n\r\n",
    "not hexadecimal": b"g\r\n",
    "size beyond 60 bits": b"fffffffffffffffff\r\n",
    "control character in an extension": b"3;a\x00\r\nabc\r\n0\r\n\r\n",
    "endless extension": b"3;" + b"a" * MAX_LINE_BYTES,
    "malformed trailer": b"0\r\nno colon\r\n\r\n",
    "folded trailer": b"0\r\na: 1\r\n b\r\n\r\n",
    "endless trailers": b"0\r\n" + b"a: 1\r\n" * 10_000,
    "mostly extensions": (b"1;" + b"a" * 2000 + b"\r\nx\r\n") * 10,
}


@pytest.mark.parametrize("encoded", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("bytewise", [False, True])
def test_a_malformed_chunked_stream_is_refused(encoded: bytes, bytewise: bool) -> None:
    pieces = [encoded[at : at + 1] for at in range(len(encoded))] if bytewise else [encoded]
    with pytest.raises(FramingError):
        decode(ChunkedBody(), pieces)


def test_small_chunks_without_extensions_are_fine() -> None:
    framing = ChunkedBody()
    content, _ = decode(framing, [b"1\r\nx\r\n"] * 20_000 + [b"0\r\n\r\n"])
    assert (len(content), framing.complete) == (20_000, True)
