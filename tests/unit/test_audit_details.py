"""Details of events are cut to what fits, and say so."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cloudcore.audit.rows import cut_details

MOST = 4096


@pytest.mark.parametrize(
    ("long", "length"),
    [
        (list(range(10_000)), 10_000),
        (["\N{BELL}" * 100] * 100, 100),
        ({str(number): {"from": None, "to": "x" * 70} for number in range(500)}, 500),
        ({"sha256:one": [f"v{number}" for number in range(5000)]}, 1),
        ([[[["x" * 10_000]]]], 1),
        ("\x00" * 10_000, 10_000),
        ("\N{SNOWMAN}" * 10_000, 10_000),
    ],
)
def test_a_long_one_keeps_its_beginning_and_short_ones_are_whole(long: object, length: int) -> None:
    details = {"long": long, "count": 7, "name": "web/shop", "nothing": None}
    cut = cut_details(details, MOST)
    assert cut.pop("cut") == {"long": length}
    part = cut.pop("long")
    assert cut == {"count": 7, "name": "web/shop", "nothing": None}
    assert type(part) is type(long)
    assert part
    text = json.dumps(part, ensure_ascii=False, separators=(",", ":"))
    assert 400 < len(msgspec.json.encode(part)) <= MOST, text[:80]


@pytest.mark.parametrize(
    "details",
    [
        {"n" * 9000: 1, "b": 2},
        {f"{number}": "x" * 1000 for number in range(1000)},
        {"n" * 900 + str(number): "x" * 1000 for number in range(20)},
    ],
)
def test_nothing_is_longer_than_asked(details: dict[str, Any]) -> None:
    cut = cut_details(details, MOST)
    assert len(msgspec.json.encode(cut)) <= MOST
    assert "cut" in cut
