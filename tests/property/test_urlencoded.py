"""The one reader of query strings and forms against the reader of the standard library."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, quote_plus, urlencode

from hypothesis import given
from hypothesis import strategies as st

from cloudcore.errors import InvalidInput
from cloudcore.web.query import decode_text, parse_fields, split_fields

MANY = 200
TEXTS = st.text(max_size=20)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=12)
PIECES = st.sampled_from(
    ["a", "b", "=", "&", "+", "%", "%4", "%41", "%2B", "%26", "%3d", "%ff", "%c3%a9", "%00", ";"]
)


@given(PAIRS)
def test_what_is_written_is_read(pairs: list[tuple[str, str]]) -> None:
    form = urlencode(pairs)
    assert parse_fields(form.encode(), max_fields=MANY) == pairs
    assert parse_qsl(form, keep_blank_values=True, errors="strict") == pairs
    query = urlencode(pairs, quote_via=quote, safe="+").encode()
    assert parse_fields(query, max_fields=MANY, plus_is_blank=False) == pairs


@given(PAIRS)
def test_what_is_written_has_one_reading_unless_repeated(pairs: list[tuple[str, str]]) -> None:
    texts = [text for pair in pairs for text in pair]
    is_unambiguous = len(dict(pairs)) == len(pairs) and not any("\0" in text for text in texts)
    try:
        found = parse_fields(urlencode(pairs).encode(), max_fields=MANY, unambiguous=True)
    except InvalidInput:
        assert not is_unambiguous
    else:
        assert is_unambiguous
        assert found == pairs


@given(st.lists(PIECES, max_size=30).map("".join))
def test_ascii_is_read_as_the_standard_library_reads_it(encoded: str) -> None:
    lenient = parse_qsl(encoded, keep_blank_values=True)
    assert parse_fields(encoded.encode(), max_fields=MANY, not_utf8="replace") == lenient
    try:
        found = parse_fields(encoded.encode(), max_fields=MANY)
    except InvalidInput:
        assert any("\ufffd" in text for pair in lenient for text in pair)
    else:
        assert found == lenient


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(encoded: bytes, unambiguous: bool) -> None:
    try:
        fields = parse_fields(encoded, max_fields=MANY, unambiguous=unambiguous)
    except InvalidInput:
        return
    assert len(fields) == len(split_fields(encoded))
    if unambiguous:
        assert len(dict(fields)) == len(fields)
        assert not any("\0" in text for field in fields for text in field)


@given(TEXTS, st.booleans())
def test_a_text_is_decoded_once(text: str, plus_is_blank: bool) -> None:
    written = quote_plus(text) if plus_is_blank else quote(text)
    assert decode_text(written.encode(), plus_is_blank=plus_is_blank) == text
