"""Checksums of objects: published check values, and those of parts."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.storage.checksums import (
    Algorithm,
    Part,
    combine,
    composite,
    decode,
    encode,
    new_checksum,
)

# Of "123456789", as the catalogue of CRC algorithms and RFC 3174 give them.
_CHECKS: Final = {
    Algorithm.CRC32: "cbf43926",
    Algorithm.CRC32C: "e3069283",
    Algorithm.CRC64NVME: "ae8b14860a799888",
    Algorithm.SHA1: "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
    Algorithm.SHA256: "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
}


def _of(algorithm: Algorithm, *pieces: bytes) -> bytes:
    checksum = new_checksum(algorithm)
    for piece in pieces:
        checksum.update(memoryview(bytearray(piece)))
    return checksum.digest()


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_published_check_values_are_met(algorithm: Algorithm) -> None:
    assert _of(algorithm, b"1234", b"", b"56789").hex() == _CHECKS[algorithm]


@pytest.mark.parametrize("algorithm", [each for each in Algorithm if each.is_crc])
@given(pieces=st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_the_crc_of_the_whole_comes_from_those_of_its_parts(
    algorithm: Algorithm, pieces: list[bytes]
) -> None:
    parts = [Part(_of(algorithm, piece), len(piece)) for piece in pieces]
    assert combine(algorithm, parts) == _of(algorithm, b"".join(pieces))


def test_the_checksum_of_parts_names_their_number() -> None:
    parts = [Part(_of(Algorithm.SHA256, piece), len(piece)) for piece in (b"a", b"b")]
    both = _of(Algorithm.SHA256, *(part.digest for part in parts))
    assert composite(Algorithm.SHA256, parts) == f"{encode(both)}-2"


@pytest.mark.parametrize("text", ["", "AAAA", "AAAAAA", "AAAAAA==x", "AAAAAB==", "!!!!!!==", "é"])
def test_what_is_no_value_is_not_decoded(text: str) -> None:
    assert decode(Algorithm.CRC32, text) is None
    assert decode(Algorithm.CRC32, "AAAAAA==") == bytes(4)
