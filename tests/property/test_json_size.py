"""What a document holds, counted without a parser, is what a parser finds in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloudcore.json_size import STEP_BYTES, JsonSize, json_size

TEXTS = st.text(st.sampled_from('ab\\":,{}[]\né€😀'), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def counted(value: object) -> JsonSize:
    """Count what a parser made of a document."""
    if isinstance(value, dict | list):
        inner = [counted(each) for each in (value.values() if isinstance(value, dict) else value)]
        names = len(value) if isinstance(value, dict) else 0
        return JsonSize(
            names + sum(each.names for each in inner),
            1 + max(1, sum(each.values for each in inner)),
        )
    return JsonSize(0, 1)


def found(document: object) -> JsonSize:
    return json_size(json.dumps(document).encode(), 1 << 40)


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
@example(["\\", '"', '\\"', "a\\\\"], True, None)
def test_names_and_values_are_those_of_a_parser(
    document: object, ascii_only: bool, indent: int | None
) -> None:
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    assert json_size(body, 1 << 40) == counted(document)


@pytest.mark.parametrize("shift", range(5))
@pytest.mark.parametrize("text", ["\\", '"', "x", '\\"'])
def test_texts_and_escapes_may_lie_across_steps(shift: int, text: str) -> None:
    long = ["x" * shift, text * STEP_BYTES, {text * 3: [1, text]}, ":,[{" * STEP_BYTES]
    assert found(long) == counted(long)


def test_counting_ends_when_it_is_enough() -> None:
    size = json_size(b"[" + b"1," * (1 << 20) + b"1]", 1000)
    assert 1000 < size.parts <= STEP_BYTES
