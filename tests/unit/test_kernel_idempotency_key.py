"""The header ``Idempotency-Key`` and the fingerprint of a request."""

from __future__ import annotations

import itertools

import pytest

from cloudcore.errors import InvalidInput
from cloudcore.web.idempotency import fingerprint, parse_key


@pytest.mark.parametrize("key", [b"k", b"k" * 255, b'"k"', b"a b", b"~!"])
def test_printable_ascii_is_a_key_as_it_is(key: bytes) -> None:
    assert parse_key([key]) == key.decode()


@pytest.mark.parametrize(
    "values", [[b""], [b"k" * 256], [b"\xc3\xa9"], [b"a\tb"], [b"a\x7f"], [b"a", b"a"]]
)
def test_anything_else_is_refused(values: list[bytes]) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_key(values)
    assert refused.value.params == {"field": "Idempotency-Key", "reason": "malformed"}


def test_no_header_is_no_key() -> None:
    assert parse_key([]) is None


def test_a_fingerprint_knows_its_parts_apart() -> None:
    requests = [
        *itertools.permutations((b"/a", b"b", b"c")),
        (b"/ab", b"", b"c"),
        (b"/ab", b"c", b""),
    ]
    assert len({fingerprint(*request) for request in requests}) == len(requests)
    assert fingerprint(b"/a", b"b", b"c") == fingerprint(b"/a", b"b", b"c")
