"""Markers: opaque, of one list and one filter, in one spelling.

Pages of them: `tests/integration/test_kernel_pagination.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.errors import InvalidInput
from cloudcore.keyring import Keyring
from cloudcore.web.pagination import PageQuery, Pager

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
