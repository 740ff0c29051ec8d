"""Byte ranges of pulls and of chunks."""

from __future__ import annotations

import pytest

from registry.distribution.byteranges import (
    MOST_RANGES,
    parse_content_range,
    parse_range,
    parse_ranges,
)
from registry.errors import RangeInvalid, RangeUnsatisfiable, SizeInvalid, UploadOutOfOrder
from registry.services.blobs.upload_bodies import Span


@pytest.mark.parametrize(
    ("header", "span"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=0-9", (0, 10)),
        ("bytes=2-5", (2, 6)),
        ("bytes=2-", (2, 10)),
        ("bytes=2-99", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        (" bytes=9- ", (9, 10)),
        ("Bytes=0-1", (0, 2)),
        ("BYTES=-3", (7, 10)),
        ("bytes=0-" + "9" * 5000, (0, 10)),
        ("bytes=-" + "9" * 5000, (0, 10)),
        # Ignored, so the whole is the answer.
        ("", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("bytes = 0-1", None),
        ("bytes=0 - 1", None),
        ("bytes=a-b", None),
        ("bytes=1", None),
        ("bytes=+1-2", None),
        ("bytes=\u0661-\u0662", None),
        ("items=0-1", None),
        ("byte\u017f=0-1", None),
    ],
)
def test_the_span_a_range_asks_for(header: str | None, span: tuple[int, int] | None) -> None:
    assert parse_range(header, 10) == span


@pytest.mark.parametrize(
    ("header", "ranges"),
    [
        ("bytes=0-1,3-4", [(0, 2), (3, 5)]),
        ("BYTES=0-0, 9-", [(0, 1), (9, 10)]),
        ("bytes=0-0,,\t1-1,", [(0, 1), (1, 2)]),
        ("bytes=5-6,0-1,-2", [(5, 7), (0, 2), (8, 10)]),
        ("bytes=-99,0-99", [(0, 10), (0, 10)]),
        ("bytes=3-3,10-,-0,11-12", [(3, 4)]),
        ("bytes=1-1," + "9" * 5000 + "-,2-" + "9" * 5000, [(1, 2), (2, 10)]),
        ("bytes=" + ",".join(["0-0", "5-5"] * 6), [(0, 1), (5, 6)] * 6),
        ("bytes=" + ",".join(f"{at}-{at}" for at in range(1025)), []),
        ("bytes=0-1,", [(0, 2)]),
        ("bytes=,", []),
        ("bytes=0-1,-", []),
        ("bytes=0-1,a", []),
        ("bytes=0-1,5-4", []),
        ("bytes =0-1,3-4", []),
        ("bytes=0-1;3-4,6-7", []),
        ("items=0-1,3-4", []),
        ("0-1,3-4", []),
        ("bytes=0-1,\u0661-\u0662", []),
    ],
)
def test_several_ranges_are_those_with_a_byte_in_their_order(
    header: str, ranges: list[tuple[int, int]]
) -> None:
    assert parse_ranges(header, 10) == ranges


def test_as_many_ranges_as_containers_storage_asks_for_are_taken() -> None:
    header = "bytes=" + ",".join(f"{at}-{at + 4}" for at in range(0, 10_240, 10))
    assert len(parse_ranges(header, 20_000)) == MOST_RANGES == 1024


@pytest.mark.parametrize("header", ["bytes=10-,11-12", "bytes=-0,10-10"])
def test_several_ranges_without_a_byte_are_refused(header: str) -> None:
    with pytest.raises(RangeUnsatisfiable):
        parse_ranges(header, 10)


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ("bytes=10-", 10),
        ("bytes=10-20", 10),
        ("bytes=5-4", 10),
        ("bytes=-0", 10),
        ("bytes=0-", 0),
        ("bytes=0-0", 0),
        ("bytes=-1", 0),
        ("bytes=" + "9" * 5000 + "-", 10),
        ("bytes=" + "0" * 20 + "-", 10),  # more digits than any number of bytes has
    ],
)
def test_a_range_without_a_byte_is_unsatisfiable(header: str, size: int) -> None:
    with pytest.raises(RangeUnsatisfiable) as refusal:
        parse_range(header, size)
    assert refusal.value.size == size


@pytest.mark.parametrize(
    ("header", "length", "span"),
    [
        (None, None, None),
        (None, 5, None),
        ("0-0", None, Span(0, 1)),
        ("0-4", 5, Span(0, 5)),
        ("5-9", None, Span(5, 5)),
        (" 5-9 ", 5, Span(5, 5)),
        ("9223372036854775806-9223372036854775807", 2, Span((1 << 63) - 2, 2)),
    ],
)
def test_where_a_chunk_says_it_lies(
    header: str | None, length: int | None, span: Span | None
) -> None:
    assert parse_content_range(header, length) == span


@pytest.mark.parametrize(
    "header",
    ["", "-", "1", "1-", "-1", "a-b", "bytes 0-4/5", "0-4/5", "0 - 4", "0-4,5-9", "1-" + "9" * 20],
)
def test_another_grammar_of_content_range_is_refused(header: str) -> None:
    with pytest.raises(RangeInvalid):
        parse_content_range(header, None)


def test_a_span_that_ends_before_it_begins_is_out_of_order() -> None:
    with pytest.raises(UploadOutOfOrder, match="ends before it starts"):
        parse_content_range("5-4", None)


@pytest.mark.parametrize("length", [0, 4, 6])
def test_a_span_is_as_long_as_the_body(length: int) -> None:
    with pytest.raises(SizeInvalid):
        parse_content_range("0-4", length)
