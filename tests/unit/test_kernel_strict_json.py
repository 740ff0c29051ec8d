"""Bodies have one reading, and the first field that is wrong is named (bad input, J)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, field

from cloudcore.errors import InvalidInput
from cloudcore.web.strict_json import MAX_DEPTH, decode, parse
from cloudcore.wire import RequestBody, Timestamp


class Inner(RequestBody):
    size: Annotated[int, Meta(ge=1, le=9)] = 1
    kind: Literal["small", "large"] | None = None


class Shape(RequestBody):
    name: Annotated[str, Meta(pattern=r"\A[a-z]+\Z", max_length=4)]
    at: Timestamp | None = None
    inner: list[Inner] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, list[Annotated[Literal["small", "large"], Meta(title="kind")]]] = field(
        default_factory=dict
    )


def refusal_of(document: bytes, shape: type[Any] = Shape) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as refused:
        decode(document, shape)
    params = refused.value.params
    assert set(params) == {"field", "reason"}
    return params["field"], params["reason"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"{} {}", "not_json"),
        (b"{'name': 1}", "not_json"),
        (b'{"name": NaN}', "not_json"),
        (b'{"name": -Infinity}', "not_json"),
        (b'\xef\xbb\xbf{"name":"a"}', "not_json"),
        ('{"name":"a"}'.encode("utf-16"), "invalid_text"),
        (b'{"name":"\xff"}', "invalid_text"),
        (b'{"name":"\xed\xa0\x80"}', "invalid_text"),
        (b'{"name":"a\\u0000"}', "invalid_text"),
        (b'{"name":"a","labels":{"\\u0000":"a"}}', "invalid_text"),
        (b'{"name":"\\ud800"}', "invalid_text"),
        (b'{"name":["\\udfff"]}', "invalid_text"),
        (b'{"name":"a\x00"}', "not_json"),
        (b'{"name":"a","name":"b"}', "duplicate_key"),
        (b'{"name":"a","inner":[{"size":1,"size":1}]}', "duplicate_key"),
        (b'{"name":"a","n\\u0061me":"a"}', "duplicate_key"),
        (b'{"name":1e400}', "out_of_range"),
        (b'{"name":-1e400}', "out_of_range"),
        (b'{"name":9223372036854775808}', "out_of_range"),
        (b'{"name":' + b"9" * 5000 + b"}", "out_of_range"),
        (b"[" * 10_000, "too_deep"),
        (b"[" * 9_000 + b"]" * 9_000, "too_deep"),
        (b"[" * 100_000, "too_many_values"),
        (b"[" + b"0," * 20_000 + b"0]", "too_many_values"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "too_deep"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "too_deep"),
    ],
)
def test_a_body_with_several_readings_or_none_is_refused(document: bytes, reason: str) -> None:
    assert refusal_of(document) == ("body", reason)


@pytest.mark.parametrize(
    ("document", "field", "reason"),
    [
        (b"null", "body", "wrong_type"),
        (b"[]", "body", "wrong_type"),
        (b"{}", "name", "missing"),
        (b'{"name":1}', "name", "wrong_type"),
        (b'{"name":"A"}', "name", "malformed"),
        (b'{"name":"abcde"}', "name", "out_of_range"),
        (b'{"name":"a","nmae":1}', "nmae", "unknown_field"),
        (b'{"name":"a","inner":[{},{"size":"1"}]}', "inner[1].size", "wrong_type"),
        (b'{"name":"a","inner":[{"size":1.5}]}', "inner[0].size", "wrong_type"),
        (b'{"name":"a","inner":[{"size":1.0}]}', "inner[0].size", "wrong_type"),
        (b'{"name":"a","inner":[{"size":true}]}', "inner[0].size", "wrong_type"),
        (b'{"name":"a","inner":[{"size":0}]}', "inner[0].size", "out_of_range"),
        (b'{"name":"a","inner":[{"size":1,"x":1}]}', "inner[0].x", "unknown_field"),
        (b'{"name":"a","labels":{"a":1}}', "labels[...]", "wrong_type"),
        (b'{"name":"a","at":"2026-02-30T00:00:00Z"}', "at", "malformed"),
        (b'{"name":"a","at":"10000-01-01T00:00:00Z"}', "at", "malformed"),
        (b'{"name":"a","at":"2026-02-20"}', "at", "malformed"),
        (b'{"name":"a","at":"2026-02-20T00:00:00"}', "at", "without_offset"),
        (b'{"name":"a","at":1}', "at", "wrong_type"),
    ],
)
def test_the_first_field_that_is_wrong_is_named(document: bytes, field: str, reason: str) -> None:
    assert refusal_of(document) == (field, reason)


def test_a_hostile_name_of_a_field_is_cut() -> None:
    field, reason = refusal_of(json.dumps({"name": "a", "x` - at `$.y" * 100: 1}).encode())
    assert len(field) <= 128
    assert reason == "unknown_field"


def test_what_is_right_arrives() -> None:
    shape = decode(b'{"name":"a","at":"2026-02-20T01:00:00.5+01:00","inner":[{}]}', Shape)
    assert shape.at == datetime(2026, 2, 20, 0, 0, 0, 500_000, UTC)
    assert shape.inner == [Inner(size=1)]


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert parse(b"[" + b"[]," * 1000 + b"[]]")


def test_escaped_text_that_is_text_is_read() -> None:
    assert parse(b'["\\ud83d\\ude00", "\\u0001"]') == ["\U0001f600", "\x01"]


class Anything(Struct):
    pass


@given(st.binary(max_size=200) | st.text('{}[]":,\\ud80e9-truefalsn ', max_size=60).map(str.encode))
def test_no_bytes_are_an_accident(document: bytes) -> None:
    try:
        parse(document)
    except InvalidInput:
        return
    assert json.loads(document) == parse(document)


class Saturating(Struct):
    saturates_integers: ClassVar[bool] = True
    number: int


@pytest.mark.parametrize(
    ("digits", "value"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2**63 - 1),
        ("-9223372036854775809", -(2**63)),
        ("9" * 100_000, 2**63 - 1),
        ("-" + "9" * 100_000, -(2**63)),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_shape_may_take_integers_of_any_size(digits: str, value: int) -> None:
    assert decode(b'{"number": %s}' % digits.encode(), Saturating).number == value
    for wrong in ("1.5", "1e30", '"1"', "true"):
        with pytest.raises(InvalidInput):
            decode(b'{"number": %s}' % wrong.encode(), Saturating)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (b'{"name":"a","inner":[{},{"kind":"%s"}]}', "inner[1].kind"),
        (b'{"name":"a","kinds":{"x":["small","%s"]}}', "kinds[...][1]"),
    ],
)
@pytest.mark.parametrize("given", [b"Small", b"", b"x" * 5_000])
def test_a_value_of_no_enumeration_is_answered_with_those_that_there_are(
    document: bytes, field: str, given: bytes
) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode(document % given, Shape)
    assert refused.value.message == f"{field}: must be one of large, small"
    assert refused.value.params == {"field": field, "reason": "not_allowed"}


class Told(RequestBody):
    """What can be wrong with a value besides its form."""

    text: Annotated[str, Meta(min_length=1, max_length=3)] = "a"
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    names: Annotated[list[str], Meta(min_length=1, max_length=2)] = field(default_factory=list)
    labels: Annotated[dict[str, str], Meta(max_length=1)] = field(default_factory=dict)
    day: int | None = None
    is_on: bool = False
    at: Timestamp | None = None


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"text": ""}, "text: at least 1 character"),
        ({"text": "abcd"}, "text: at most 3 characters"),
        ({"count": 0}, "count: at least 1"),
        ({"count": 10}, "count: at most 9"),
        ({"names": []}, "names: at least 1 entry"),
        ({"names": ["a", "b", "c"]}, "names: at most 2 entries"),
        ({"names": ["a", 1]}, "names[1]: must be a string, not a whole number"),
        ({"labels": {"a": "", "b": ""}}, "labels: at most 1 member"),
        ({"labels": []}, "labels: must be an object, not a list"),
        ({"day": "1"}, "day: must be a whole number or null, not a string"),
        ({"day": 1.5}, "day: must be a whole number or null, not a number"),
        ({"is_on": None}, "is_on: must be true or false, not null"),
        ({"at": "noon"}, "at: must be a time such as 2026-01-31T12:00:00Z"),
        (
            {"at": "2026-01-31T12:00:00"},
            "at: must be a time with its offset, such as Z",
        ),
        ({"at": 1}, "at: must be a time or null, not a whole number"),
        ([], "body: must be an object, not a list"),
    ],
)
def test_a_refusal_says_in_plain_words_what_is_wanted(document: object, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode(json.dumps(document).encode(), Told)
    assert str(refused.value) == words
