"""Query strings and forms: one reader, and what each plane asks of it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from cloudcore.errors import InvalidInput
from cloudcore.identity.oauth.forms import parse_parameters
from cloudcore.web.query import PLUS, decode_text, parse_fields, parse_query, split_fields
from registry.console.browser_request import query_of
from registry.distribution.request import Query

MANY = 200


def test_fields_keep_their_order_repeats_and_empty_values() -> None:
    encoded = b"b=1&&a&b=2=3&=x&c=&"
    assert parse_fields(encoded, max_fields=MANY) == [
        ("b", "1"),
        ("a", ""),
        ("b", "2=3"),
        ("", "x"),
        ("c", ""),
    ]
    assert split_fields(b"%61=%&x") == [(b"%61", b"%"), (b"x", b"")]
    assert split_fields(b"") == []


def test_names_and_values_are_decoded_once() -> None:
    assert parse_fields(b"%61%3D=%2541%26%c3%a9", max_fields=MANY) == [("a=", "%41&é")]


def test_a_plus_is_a_blank_or_a_plus() -> None:
    assert parse_fields(b"a+b=c+%2B", max_fields=MANY) == [("a b", "c +")]
    assert parse_fields(b"a+b=c+%2B", max_fields=MANY, plus_is_blank=False) == [("a+b", "c++")]


def test_what_is_not_utf8_is_refused_or_replaced() -> None:
    for encoded in (b"%ff", b"\xff", b"%ed%a0%80", b"%c3"):
        with pytest.raises(InvalidInput, match="not UTF-8"):
            decode_text(encoded)
        assert set(decode_text(encoded, not_utf8="replace")) == {"\ufffd"}


def test_what_has_two_readings_is_refused_if_asked() -> None:
    assert decode_text(b"%zz%4%00") == "%zz%4\0"
    for encoded, words in (
        (b"a=%4", "begins no escape"),
        (b"%zz=a", "begins no escape"),
        (b"a=%00", "null character"),
        (b"a=1&%61=2", "more than once"),
    ):
        assert parse_fields(encoded, max_fields=MANY)
        with pytest.raises(InvalidInput, match=words):
            parse_fields(encoded, max_fields=MANY, unambiguous=True)


@pytest.mark.parametrize("counts_empty", [True, False])
def test_the_number_of_fields_is_bounded(counts_empty: bool) -> None:
    full = b"a=1&" * 3 + b"a=1"
    assert len(parse_fields(full, max_fields=4, counts_empty=counts_empty)) == 4
    with pytest.raises(InvalidInput, match="too many"):
        parse_fields(full + b"&a", max_fields=4, counts_empty=counts_empty)


def test_empty_fields_count_where_that_is_asked() -> None:
    assert parse_fields(b"a&&&&", max_fields=1, counts_empty=False) == [("a", "")]
    with pytest.raises(InvalidInput, match="too many"):
        parse_fields(b"a&&&&", max_fields=1)


class Plain(msgspec.Struct):
    a: str = ""


class Literal(msgspec.Struct):
    a: Annotated[str, PLUS] = ""


def test_each_plane_reads_a_plus_in_its_own_way() -> None:
    encoded = b"a=x+y%2Bz"
    assert Query(encoded).one("a") == "x+y+z"
    assert Query(encoded, is_form=True).one("a") == "x y+z"
    assert parse_parameters(encoded) == {"a": "x y+z"}
    assert parse_query(encoded, Plain).a == "x y+z"
    assert parse_query(encoded, Literal).a == "x+y+z"
    assert query_of({"query_string": encoded}) == {"a": "x y+z"}


@pytest.mark.parametrize("is_form", [True, False])
@pytest.mark.parametrize(
    "encoded", [b"a=%ff", b"a=\xc3\xa9", b"a&" * MANY, b"&" * MANY, b"a=1&b=%c3"]
)
def test_the_data_plane_refuses_in_its_own_words(encoded: bytes, is_form: bool) -> None:
    with pytest.raises(InvalidInput) as refused:
        Query(encoded, is_form=is_form)
    words = "the query must be percent-encoded UTF-8 of at most 200 parameters"
    assert refused.value.message == words
    assert Query(b"a&" * (MANY - 1) + b"a=%zz").all("a")[-1] == "%zz"


@pytest.mark.parametrize(
    ("encoded", "words"),
    [
        (b"a=1&b=%&a=2", "a percent sign begins no escape"),
        (b"a=1&a=%ff", "a parameter is given more than once"),
        (b"a=%ff&a=1", "the parameters are not UTF-8"),
        (b"a=%00&b=%ff", "a parameter holds a null character"),
        (b"a=%ff" + b"&a=1" * 32, "there are too many parameters"),
    ],
)
def test_of_several_faults_of_a_form_the_first_is_told(encoded: bytes, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_parameters(encoded)
    assert refused.value.message == words


def test_a_form_of_oauth_may_have_empty_fields() -> None:
    assert parse_parameters(b"&" * 100 + b"a=1&&") == {"a": "1"}


def test_the_console_reads_leniently() -> None:
    assert query_of({"query_string": b"a=1&a=2&b=&c&d=%ff&e=%zz&&"}) == {
        "a": "2",
        "d": "\ufffd",
        "e": "%zz",
    }
    assert query_of({"query_string": b"&" * 31}) == {}
    with pytest.raises(InvalidInput, match="there are too many parameters"):
        query_of({"query_string": b"&" * 32})
