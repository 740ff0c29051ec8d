"""Moments on the wire: RFC 3339, UTC, always six decimals."""

from __future__ import annotations

from datetime import datetime

import pytest

from cloudcore.wire import LAST_MOMENT, moment_of, rfc3339


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00.000000Z", 0),
        ("2027-01-15T08:00:00.000001Z", 1_800_000_000_000_001),
        ("1969-12-31T23:59:59.999999Z", -1),
    ],
)
def test_a_moment_and_its_text(text: str, moment: int) -> None:
    assert rfc3339(moment) == text
    assert moment_of(datetime.fromisoformat(text)) == moment


def test_the_ends_of_time_are_numbers_too() -> None:
    first = datetime.fromisoformat("0001-01-01T00:00:00+14:00")
    last = datetime.fromisoformat("9999-12-31T23:59:59-14:00")
    assert moment_of(first) < 0 < moment_of(last)
    assert rfc3339(LAST_MOMENT) == "9999-12-31T23:59:59.999999Z"
    assert moment_of(last) > LAST_MOMENT
