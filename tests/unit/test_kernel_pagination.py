"""Markers: opaque, of one list and one filter, in one spelling."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.errors import InvalidInput
from cloudcore.keyring import Keyring
from cloudcore.web.pagination import PageQuery, Pager, UuidPage

KEYRING = Keyring(b"k" * 32)
ROWS = [("a", 1), ("b", 2), ("c", 3)]


class ListThings(PageQuery):
    prefix: str = ""


class ListOthers(PageQuery):
    suffix: str = ""


def marker(limit: int = 2, prefix: str = "", *within: str) -> str:
    pager = Pager(KEYRING, ListThings(limit=limit, prefix=prefix), within)
    _, meta = pager.cut(ROWS, 3, key=lambda row: row)
    assert isinstance(meta.marker, str)
    return meta.marker


def test_a_page_ends_where_the_next_begins() -> None:
    pager = Pager(KEYRING, ListThings(limit=2), ("account",))
    assert pager.position is None
    assert pager.wanted == 3
    page, meta = pager.cut(ROWS, 3, key=lambda row: row)
    assert page == ROWS[:2]
    assert (meta.total, meta.limit, meta.has_more) == (3, 2, True)
    assert isinstance(meta.marker, str)
    following = Pager(KEYRING, ListThings(limit=9, marker=meta.marker), ("account",))
    assert following.position == ("b", 2)


@pytest.mark.parametrize("limit", [3, 4])
def test_the_last_page_has_no_marker(limit: int) -> None:
    page, meta = Pager(KEYRING, ListThings(limit=limit), ()).cut(ROWS, 3, key=lambda row: row)
    assert page == ROWS
    limited = {"total": 3, "limit": limit, "has_more": False}
    assert msgspec.to_builtins(meta) == limited  # no marker, not even null (part 2)


@pytest.mark.parametrize(
    ("query", "within"),
    [
        (ListThings(marker=marker(), prefix="a"), ()),
        (ListOthers(marker=marker()), ()),
        (ListThings(marker=marker()), ("another account",)),
        (ListThings(marker=marker()[:-1]), ()),
        (ListThings(marker=marker() + "="), ()),
        (ListThings(marker=marker() + "!"), ()),
        (ListThings(marker=""), ()),
        (ListThings(marker="é"), ()),
        (ListThings(marker="AAAA"), ()),
    ],
)
def test_a_marker_of_elsewhere_is_refused(query: PageQuery, within: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as refused:
        Pager(KEYRING, query, within)
    assert refused.value.params == {"field": "marker", "reason": "malformed"}


@given(st.text("ABCDabcd0189-_=", max_size=80))
def test_no_text_is_a_marker_by_chance(text: str) -> None:
    with pytest.raises(InvalidInput):
        Pager(KEYRING, ListThings(marker=text), ())


def test_another_limit_keeps_the_place() -> None:
    assert Pager(KEYRING, ListThings(marker=marker(), limit=7), ()).position == ("b", 2)


def test_a_documented_marker_is_the_id_itself() -> None:
    identity = "01890000-0000-7000-8000-000000000001"
    pager = Pager(KEYRING, UuidPage(limit=1), ())
    _, meta = pager.cut([identity, "x"], 2, key=lambda row: (row,))
    assert meta.marker == identity
    assert Pager(KEYRING, UuidPage(marker=identity), ()).position == (identity,)
