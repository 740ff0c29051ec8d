"""The tables and curves that are made of a result of the benchmark."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import goals, plot


def result(**rates: tuple[float | None, float | None]) -> dict[str, Any]:
    """Return a result: rates of ours and of the peer, by rows such as ``GET_x4``."""
    targets = (goals.OURS, goals.PEER)
    rows = [
        {
            "row": name.replace("_", " "),
            "unit": "req/s",
            "targets": {
                target: {"value": rate, "cpu": rate and 1e6 / rate}
                for target, rate in zip(targets, both, strict=True)
            },
        }
        for name, both in rates.items()
    ]
    return {"rows": rows}


def test_a_chart_has_a_line_for_each_target() -> None:
    drawn = plot.rates(
        result(GET_x1=(100, 10), GET_x16=(900, None), GET_x4=(500, 15), PUT_x1=(1, 2))
    )
    image = ET.fromstring(drawn)
    names = {element.text for element in image.iter("{http://www.w3.org/2000/svg}text")}
    assert {"GET: req/s by clients", goals.OURS, goals.PEER, "1", "4", "16"} <= names
    lines = list(image.iter("{http://www.w3.org/2000/svg}polyline"))
    assert [len(line.attrib["points"].split()) for line in lines] == [3, 2]
    assert "PUT" not in drawn


def test_equal_rates_can_be_drawn() -> None:
    ET.fromstring(plot.rates(result(GET_x1=(100, 100), GET_x2=(100, 100))))
    ET.fromstring(plot.rates(result()))


def test_a_table_compares_rates_and_costs() -> None:
    document = result(GET=(1000, 100), **{"GET beside 100 commits/s": (500, 100)})
    *_, line = goals.table_of_reads(document)
    assert line == "| `GET` | 1,000 | 100 | 10.0 | 1,000 | 2,000 (2.00) | - (-) | - (-) | - (-) |"


def test_a_part_is_replaced_between_its_marks() -> None:
    text = "a\n<!-- reads -->\nold\n<!-- end of reads -->\nb\n"
    for _ in range(2):
        text = goals.replaced(text, "reads", ["new", r"\1"])
        assert text == "a\n<!-- reads -->\nnew\n\\1\n<!-- end of reads -->\nb\n"
    with pytest.raises(ValueError, match="marks"):
        goals.replaced(text, "pushes", [])
