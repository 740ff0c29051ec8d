"""Times as ``entrepot audit`` takes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from registry.cli.audit import moment
from registry.cli.failure import Misuse

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, None),
        ("90m", "2026-03-01T10:30:00+00:00"),
        ("24h", "2026-02-28T12:00:00+00:00"),
        ("7d", "2026-02-22T12:00:00+00:00"),
        ("2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00+00:00"),
        ("2026-01-31T08:00:00+02:00", "2026-01-31T08:00:00+02:00"),
    ],
)
def test_a_time_is_absolute_or_so_long_ago(text: str | None, told: str | None) -> None:
    assert moment(text, NOW) == told


@pytest.mark.parametrize("text", ["", "yesterday", "5", "1y", "-3d", "2026-13-01"])
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(Misuse):
        moment(text, NOW)
