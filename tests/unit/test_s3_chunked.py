"""The decoder of ``aws-chunked``: AWS's examples, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from cloudcore.storage.s3.chunked import ChunkDecoder
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.signature import RequestSigningKey
from tests.s3_signing import DATE, SCOPE, day_key, framed

_TRAILER: Final = "x-amz-checksum-crc32c"


def key_of(seed: str) -> RequestSigningKey:
    return RequestSigningKey(day_key(), SCOPE, DATE, seed)


def _into(got: bytearray) -> Callable[[memoryview], None]:
    return got.extend


def _decode(
    body: bytes,
    length: int,
    *,
    seed: str | None = None,
    trailers: tuple[str, ...] = (),
    step: int | None = None,
) -> tuple[bytes, dict[str, str]]:
    got = bytearray()
    key = None if seed is None else key_of(seed)
    decoder = ChunkDecoder(_into(got), length, key=key, trailers=frozenset(trailers))
    step = step or len(body) or 1
    for at in range(0, len(body), step):
        decoder.write(memoryview(body)[at : at + step])
    decoder.finish()
    return bytes(got), decoder.trailers


def test_the_example_of_signed_chunks_is_met() -> None:
    seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
    first, second, last = (
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    )
    body = (
        f"10000;chunk-signature={first}\r\n{'a' * 65536}\r\n"
        f"400;chunk-signature={second}\r\n{'a' * 1024}\r\n"
        f"0;chunk-signature={last}\r\n\r\n"
    ).encode()
    assert _decode(body, 66560, seed=seed) == (b"a" * 66560, {})


def test_the_example_of_signed_trailers_is_met() -> None:
    seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
    first, second, last, trailer = (
        "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
        "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
        "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435",
    )
    body = (
        f"10000;chunk-signature={first}\r\n{'a' * 65536}\r\n"
        f"400;chunk-signature={second}\r\n{'a' * 1024}\r\n"
        f"0;chunk-signature={last}\r\n{_TRAILER}:sOO8/Q==\r\n"
        f"x-amz-trailer-signature:{trailer}\r\n\r\n"
    ).encode()
    got = _decode(body, 66560, seed=seed, trailers=(_TRAILER,))
    assert got == (b"a" * 66560, {_TRAILER: "sOO8/Q=="})


def test_unsigned_chunks_with_a_trailer_are_taken_without_framing() -> None:
    body = framed([b"hello ", b"world"], None, {_TRAILER: "sOO8/Q=="})
    assert _decode(body, 11, trailers=(_TRAILER,)) == (b"hello world", {_TRAILER: "sOO8/Q=="})


def test_an_empty_body_is_its_last_chunk() -> None:
    seed = "0" * 64
    assert _decode(framed([], seed), 0, seed=seed) == (b"", {})


@pytest.mark.parametrize("seed", [None, "0" * 64], ids=["unsigned", "signed"])
def test_every_split_gives_the_same(seed: str | None) -> None:
    trailers = {_TRAILER: "sOO8/Q=="}
    body = framed([b"some\r\n", b"0\r\n\r\n", b"x" * 40], seed, trailers)
    expected = b"some\r\n0\r\n\r\n" + b"x" * 40, trailers
    for step in range(1, len(body) + 1):
        assert _decode(body, 51, seed=seed, trailers=(_TRAILER,), step=step) == expected
    for cut in range(1, len(body)):
        got = bytearray()
        decoder = ChunkDecoder(
            _into(got),
            51,
            key=key_of(seed) if seed else None,
            trailers=frozenset(trailers),
        )
        decoder.write(memoryview(body)[:cut])
        with pytest.raises(S3Error):
            decoder.finish()
        decoder.write(memoryview(body)[cut:])
        decoder.finish()
        assert (bytes(got), decoder.trailers) == expected


_SEED: Final = "1" * 64
_SIGNED: Final = framed([b"hello ", b"world"], _SEED, {_TRAILER: "sOO8/Q=="})
_UNSIGNED: Final = framed([b"hello ", b"world"], None, {_TRAILER: "sOO8/Q=="})

_REFUSED: Final[dict[str, Callable[[], object]]] = {
    "a changed byte": lambda: _signed(_SIGNED.replace(b"hello", b"hallo")),
    "a changed trailer": lambda: _signed(_SIGNED.replace(b"sOO8", b"sOO9")),
    "an unsigned trailer": lambda: _signed(_SIGNED.partition(b"x-amz-trailer")[0] + b"\r\n"),
    "a trailer after the signature of the trailers": lambda: _signed(
        _SIGNED[:-2] + b"x-amz-checksum-crc32:AAAAAA==\r\n\r\n"
    ),
    "a trailer that is no field": lambda: _unsigned(
        _UNSIGNED.replace(_TRAILER.encode() + b":", b"\xa0 ")
    ),
    "a signed trailer after the signature of the trailers": lambda: _decode(
        _SIGNED[:-2] + b"x-amz-checksum-sha1:AAAA\r\n\r\n",
        11,
        seed=_SEED,
        trailers=(_TRAILER, "x-amz-checksum-sha1"),
    ),
    "a signature of no trailers": lambda: _decode(
        _SIGNED.replace(f"{_TRAILER}:sOO8/Q==\r\n".encode(), b""), 11, seed=_SEED
    ),
    "a trailer that nobody named": lambda: _decode(_UNSIGNED, 11),
    "no trailer though one was named": lambda: _decode(
        framed([b"hello world"], None), 11, trailers=(_TRAILER,)
    ),
    "a trailer twice": lambda: _unsigned(_UNSIGNED[:-2] + f"{_TRAILER}:sOO8/Q==\r\n\r\n".encode()),
    "chunks in another order": lambda: _decode(
        _swapped(framed([b"hello", b"world"], _SEED)), 10, seed=_SEED
    ),
    "the seed of another request": lambda: _decode(framed([b"hello"], _SEED), 5, seed="2" * 64),
    "chunks without signatures": lambda: _signed(_UNSIGNED),
    "a signature where none is asked for": lambda: _unsigned(_SIGNED),
    "less than its length": lambda: _decode(framed([b"hello"], None), 6),
    "more than its length": lambda: _decode(framed([b"hello"], None), 4),
    "a negative size": lambda: _decode(b"-5\r\nhello\r\n0\r\n\r\n", 5),
    "a huge size": lambda: _decode(b"fffffffffffff\r\nhello\r\n", 5),
    "a size with a prefix": lambda: _decode(b"0x5\r\nhello\r\n0\r\n\r\n", 5),
    "an empty size": lambda: _decode(b"\r\nhello\r\n0\r\n\r\n", 5),
    "an extension": lambda: _decode(b"5;a=b\r\nhello\r\n0\r\n\r\n", 5),
    "a line feed alone": lambda: _decode(b"5\nhello\r\n0\r\n\r\n", 5),
    "a long line": lambda: _decode(b"0" * 2000, 5),
    "a chunk longer than its size": lambda: _decode(b"4\r\nhello\r\n0\r\n\r\n", 4),
    "bytes after the end": lambda: _decode(framed([b"hello"], None) + b"x", 5),
    "no last chunk": lambda: _decode(b"5\r\nhello\r\n", 5),
    "nothing": lambda: _decode(b"", 0),
    "too many trailers": lambda: _decode(
        b"0\r\n" + b"".join(b"x-%d:1\r\n" % n for n in range(9)) + b"\r\n",
        0,
        trailers=tuple(f"x-{n}" for n in range(9)),
    ),
}


def _signed(body: bytes) -> object:
    return _decode(body, 11, seed=_SEED, trailers=(_TRAILER,))


def _unsigned(body: bytes) -> object:
    return _decode(body, 11, trailers=(_TRAILER,))


def _swapped(body: bytes) -> bytes:
    first = body.index(b"5;", 10)
    last = body.index(b"0;", first)
    return body[first:last] + body[:first] + body[last:]


@pytest.mark.parametrize("what", _REFUSED)
def test_a_chunked_body_is_refused_with(what: str) -> None:
    with pytest.raises(S3Error) as caught:
        _REFUSED[what]()
    assert caught.value.code in ("IncompleteBody", "SignatureDoesNotMatch")


def test_a_body_of_tiny_chunks_is_refused() -> None:
    count = 2000
    decoder = ChunkDecoder(lambda _: None, count)
    with pytest.raises(S3Error, match="small chunks"):
        decoder.write(memoryview(b"1\r\na\r\n" * count))
