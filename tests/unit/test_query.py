"""Query parameters: what is ambiguous is refused."""

from __future__ import annotations

import pytest

from cloudcore.errors import InvalidInput
from registry.distribution.request import Query, next_link, page_cursor, page_size
from registry.errors import DigestInvalid, ListQueryInvalid


def test_parameters_keep_their_order_and_their_empty_values() -> None:
    query = Query(b"tag=b&x&tag=a%20b&tag=&y=1%2B1")
    assert query.all("tag") == ["b", "a b", ""]
    assert query.one("x") == ""
    assert query.one("y") == "1+1"
    assert query.has("x")
    assert not query.has("z")
    assert query.one("z") is None
    assert query.all("z") == []


def test_no_query_has_no_parameters() -> None:
    assert not Query(b"").has("")
    assert Query(b"&&").all("") == []


@pytest.mark.parametrize("text", [b"x=%ff", b"x=\xc3\xa9", b"x=%ed%a0%80", b"a&" * 300])
def test_what_cannot_be_decoded_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInput):
        Query(text)


def test_a_parameter_given_twice_is_refused_in_the_words_of_its_reader() -> None:
    query = Query(b"digest=a&digest=a")
    with pytest.raises(InvalidInput):
        query.one("digest")
    with pytest.raises(DigestInvalid):
        query.one("digest", DigestInvalid)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (b"", 100),
        (b"n=0", 0),
        (b"n=1", 1),
        (b"n=050", 50),
        (b"n=100", 100),
        (b"n=101", 100),
        (b"n=" + b"9" * 9, 100),
        (b"n=" + b"9" * 5000, 100),
    ],
)
def test_a_page_is_as_long_as_asked_up_to_a_limit(text: bytes, size: int) -> None:
    assert page_size(Query(text), 100) == size


@pytest.mark.parametrize(
    "text",
    [b"n=", b"n=-1", b"n=+1", b"n=1.0", b"n=1e1", b"n=%D9%A1", b"n=1%0A", b"n=1&n=1"],
)
def test_what_is_no_number_of_entries_is_refused(text: bytes) -> None:
    with pytest.raises(ListQueryInvalid):
        page_size(Query(text), 100)


@pytest.mark.parametrize(
    ("text", "cursor"),
    [(b"", ""), (b"last=", ""), (b"last=v1", "v1"), (b"last=a%2Fb", "a/b"), (b"last=%C3%A9", "é")],
)
def test_a_cursor_is_any_text(text: bytes, cursor: str) -> None:
    assert page_cursor(Query(text)) == cursor


@pytest.mark.parametrize(
    "text", [b"last=%00", b"last=a%0Ab", b"last=a&last=b", b"last=" + b"x" * 513]
)
def test_a_cursor_that_cannot_be_an_entry_is_refused(text: bytes) -> None:
    with pytest.raises(ListQueryInvalid):
        page_cursor(Query(text))


def test_the_next_page_is_linked() -> None:
    assert next_link("/v2/dev/a/tags/list", n=2, last="v&1/ü") == (
        b"link",
        b'</v2/dev/a/tags/list?n=2&last=v%261%2F%C3%BC>; rel="next"',
    )
