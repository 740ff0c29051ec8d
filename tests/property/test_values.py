"""Digests, ranges, queries, preconditions and ids against simple oracles."""

from __future__ import annotations

import hashlib
import uuid
from urllib.parse import parse_qsl, urlsplit

from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.clock import uuid7
from cloudcore.errors import InvalidInput
from registry.distribution.byteranges import parse_content_range, parse_range, parse_ranges
from registry.distribution.request import Query, next_link, page_cursor, page_size
from registry.errors import (
    DigestInvalid,
    RangeInvalid,
    RangeUnsatisfiable,
    SizeInvalid,
    UploadOutOfOrder,
)
from registry.oci.digest import ALGORITHMS, Digest, digest_of, new_hasher
from registry.services.tags.pointers import Precondition

NUMBERS = st.integers(0, 30) | st.integers(0, 1 << 70)
DIGEST_SETS = st.frozensets(st.sampled_from(["one", "two", "three"]), max_size=3)


@given(st.lists(st.binary(max_size=50)), st.sampled_from(ALGORITHMS))
def test_a_digest_is_that_of_the_reference_implementation(
    parts: list[bytes], algorithm: str
) -> None:
    data = b"".join(parts)
    hasher = new_hasher(algorithm)
    for part in parts:
        hasher.update(memoryview(part))
    reference = blake3(data) if algorithm == "blake3" else hashlib.new(algorithm, data)
    assert hasher.hexdigest() == reference.hexdigest()
    assert Digest.parse(f"{algorithm}:{reference.hexdigest()}") == digest_of(data, algorithm)


@given(
    st.sampled_from([*ALGORITHMS, "sha384", "SHA256", ""]),
    st.text("0123456789abcdefABCg\n", min_size=62, max_size=66) | st.text("0f", max_size=130),
)
def test_a_digest_has_a_known_algorithm_and_hex_of_its_length(algorithm: str, hexes: str) -> None:
    length = {"sha256": 64, "sha512": 128, "blake3": 64}.get(algorithm)
    is_digest = len(hexes) == length and set(hexes) <= set("0123456789abcdef")
    try:
        Digest.parse(f"{algorithm}:{hexes}")
    except DigestInvalid:
        assert not is_digest
    else:
        assert is_digest


def asked_bytes(first: int | None, last: int | None, size: int) -> range | None:
    """Return the bytes a range asks for (RFC 9110 §14.1.2); None when there are none such."""
    if first is None:
        assert last is not None
        asked = range(max(0, size - last), size)
    elif last is None:
        asked = range(first, size)
    else:
        asked = range(first, min(last + 1, size))
    return asked or None


@given(st.none() | NUMBERS, st.none() | NUMBERS, st.integers(0, 40))
def test_a_range_holds_what_it_asks_for(first: int | None, last: int | None, size: int) -> None:
    if first is None and last is None:
        return
    header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    expected = asked_bytes(first, last, size)
    try:
        found = parse_range(header, size)
    except RangeUnsatisfiable:
        assert expected is None
    else:
        assert found is not None
        assert range(*found) == expected


@given(st.text(max_size=30) | st.text("bytes=0123456789-, ", max_size=30), st.integers(0, 40))
def test_any_range_is_within_the_content_or_ignored_or_refused(header: str, size: int) -> None:
    try:
        found = parse_range(header, size)
    except RangeUnsatisfiable:
        return
    if found is not None:
        start, stop = found
        assert 0 <= start < stop <= size


@given(
    st.text(max_size=30)
    | st.text("bytes=0123456789-, ", max_size=60)
    | st.text("0123456789-, ", max_size=60).map("bytes={}".format),
    st.integers(0, 40),
)
def test_any_several_ranges_are_within_the_content_or_ignored_or_refused(
    header: str, size: int
) -> None:
    try:
        found = parse_ranges(header, size)
    except RangeUnsatisfiable:
        return
    assert all(0 <= start < stop <= size for start, stop in found)


@given(NUMBERS, NUMBERS, st.none() | NUMBERS)
def test_a_chunk_lies_where_it_says(first: int, last: int, length: int | None) -> None:
    try:
        span = parse_content_range(f"{first}-{last}", length)
    except RangeInvalid:
        assert max(first, last) >= 10**19
    except UploadOutOfOrder:
        assert last < first
    except SizeInvalid:
        assert length not in (None, last - first + 1)
    else:
        assert span is not None
        assert (span.first, span.first + span.length - 1) == (first, last)
        assert length in (None, span.length)


@given(st.text(max_size=40))
def test_any_other_content_range_is_refused_by_name(header: str) -> None:
    try:
        span = parse_content_range(header, None)
    except (RangeInvalid, UploadOutOfOrder):
        return
    assert span is not None
    assert span.length > 0


@given(
    st.text("abz/0._-", min_size=1, max_size=20),
    st.integers(0, 1000),
    st.text(st.characters(categories=("L", "N", "P", "S")), max_size=30),
)
def test_a_link_leads_back_to_its_parameters(path: str, size: int, last: str) -> None:
    name, value = next_link(f"/v2/{path}", n=size, last=last)
    assert name == b"link"
    text = value.decode("ascii")
    assert text.startswith("<")
    assert text.endswith('>; rel="next"')
    target = text[1 : text.index(">")]
    assert urlsplit(target).path == f"/v2/{path}"
    query = Query(urlsplit(target).query.encode())
    assert page_size(query, 1000) == size
    assert page_cursor(query) == last


@given(st.binary(max_size=60))
def test_any_query_is_read_or_refused(raw: bytes) -> None:
    try:
        query = Query(raw)
        values = [query.all("n"), query.all("last")]
    except InvalidInput:
        return
    pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True)
    assert values == [[v for k, v in pairs if k == key] for key in ("n", "last")]


@given(
    match=st.none() | DIGEST_SETS | st.just(frozenset("*")),
    none_match=st.none() | DIGEST_SETS | st.just(frozenset("*")),
    tag=st.frozensets(st.sampled_from(["one", "two", "three"]), max_size=2),
)
def test_a_precondition_holds_as_the_standard_says(
    match: frozenset[str] | None, none_match: frozenset[str] | None, tag: frozenset[str]
) -> None:
    # RFC 9110 §13.1: If-Match asks for one of a list, If-None-Match for none, "*" for existence.
    exists = bool(tag)
    first = match is None or (exists if match == {"*"} else any(d in tag for d in match))
    second = none_match is None or (
        not exists if none_match == {"*"} else all(d not in tag for d in none_match)
    )
    assert Precondition(match, none_match).holds(tag) is (first and second)


@given(st.lists(st.integers(0, (1 << 48) * 1000 - 1), min_size=2, max_size=20))
def test_ids_sort_by_their_millisecond(moments: list[int]) -> None:
    ids = [(uuid7(moment), moment // 1000) for moment in moments]
    assert [when for _, when in sorted(ids)] == sorted(when for _, when in ids)
    for text, _ in ids:
        assert str(uuid.UUID(text)) == text
