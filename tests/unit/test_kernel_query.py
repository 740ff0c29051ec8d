"""Query strings: known parameters come once, in one spelling; others are ignored (bad input, I)."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from cloudcore.errors import InvalidInput
from cloudcore.web.pagination import PageQuery, UuidPage
from cloudcore.web.query import PLUS, parse_query


class Query(PageQuery):
    name_prefix: str = ""
    status: Literal["tagged", "any"] | None = None
    deep: bool = False
    kind: Annotated[str, PLUS] = ""


def refusal_of(query: bytes) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as refused:
        parse_query(query, Query)
    return refused.value.params["field"], refused.value.params["reason"]


@pytest.mark.parametrize(
    "value",
    [b"", b"abc", b"1.5", b"5.0", b"1e1", b"+5", b"%2B5", b"%205", b"05", b"1_0", b"0x10",
     "٣".encode(), b"5%0A", b"1" * 5000, b"-0"],
)  # fmt: skip
def test_a_number_has_one_spelling(value: bytes) -> None:
    assert refusal_of(b"limit=" + value) == ("limit", "wrong_type")


@pytest.mark.parametrize("value", [b"0", b"-1", b"201", b"100000000000000000"])
def test_a_limit_out_of_range_is_not_clamped(value: bytes) -> None:
    assert refusal_of(b"limit=" + value) == ("limit", "out_of_range")


@pytest.mark.parametrize("value", [b"1", b"200"])
def test_a_limit_in_range_is_taken(value: bytes) -> None:
    assert parse_query(b"limit=" + value, Query).limit == int(value)


def test_a_plus_is_a_blank_but_where_it_is_marked() -> None:
    found = parse_query(b"name_prefix=a+b%2Bc&kind=a+b%2Bc%20d", Query)
    assert (found.name_prefix, found.kind) == ("a b+c", "a+b+c d")


@pytest.mark.parametrize(
    ("query", "field", "reason"),
    [
        (b"limit=1&limit=1", "limit", "duplicate"),
        (b"name_prefix=a&x=1&name%5Fprefix=b", "name_prefix", "duplicate"),
        (b"name_prefix=%00", "name_prefix", "invalid_text"),
        (b"name_prefix=%FF", "name_prefix", "invalid_text"),
        (b"status=x", "status", "not_allowed"),
        (b"status=", "status", "not_allowed"),
        (b"deep=1", "deep", "wrong_type"),
    ],
)
def test_what_is_known_is_checked(query: bytes, field: str, reason: str) -> None:
    assert refusal_of(query) == (field, reason)


def test_what_is_not_known_is_ignored() -> None:
    assert parse_query(b"utm=%FF&utm=2&&=&%FF=1", Query) == Query()


def test_text_is_taken_as_it_is() -> None:
    query = parse_query(b"name_prefix=%25_%2B+x&deep=true&status=any", Query)
    assert query == Query(name_prefix="%_+ x", deep=True, status="any")


@pytest.mark.parametrize(
    "marker",
    ["01890000-0000-7000-8000-00000000000", "01890000-0000-7000-8000-00000000000G",
     "{01890000-0000-7000-8000-000000000001}", "urn:uuid:01890000-0000-7000-8000-000000000001",
     "01890000-0000-7000-8000-000000000001%0A", "01890000000070008000000000000001"],
)  # fmt: skip
def test_a_documented_uuid_marker_is_a_uuid(marker: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_query(f"marker={marker}".encode(), UuidPage)
    assert refused.value.params["field"] == "marker"
