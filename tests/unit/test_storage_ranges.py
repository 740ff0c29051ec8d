"""Ranges of objects: what clients send for "to the end", and what means nothing."""

from __future__ import annotations

import pytest

from cloudcore.storage.conditions import parse_range
from cloudcore.storage.errors import InvalidRange


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=2-5", (2, 6)),
        ("BYTES=2-5", (2, 6)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=2-9223372036854775806", (2, 10)),  # Long.MAX_VALUE - 1, as clients in Java send
        ("bytes=2-" + "9" * 5_000, (2, 10)),
        ("bytes=-" + "9" * 5_000, (0, 10)),
        ("bytes=5-2", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        (None, None),
    ],
)
def test_a_range_is_clamped_to_the_object(
    header: str | None, expected: tuple[int, int] | None
) -> None:
    assert parse_range(header, 10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=-0", "bytes=" + "9" * 5_000 + "-"])
def test_a_range_without_a_byte_is_refused(header: str) -> None:
    with pytest.raises(InvalidRange):
        parse_range(header, 10)
