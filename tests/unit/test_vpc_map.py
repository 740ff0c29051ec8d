"""The picture of a VPC is well-formed whatever names are in it, and keeps within its bounds."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from registry.console.pages.services.vpc_map import MOST_FLOWS, WIDTH, traffic_in_words, vpc_map
from tests.soak import times

_names = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co")),
    min_size=1,
    max_size=70,
)
_refs = st.builds(lambda name, of: {"id": of, "crn": "", "name": name}, _names, st.uuids().map(str))
_traffic = st.lists(
    st.builds(
        lambda protocol, ports: {"protocol": protocol, "ports": ports},
        st.sampled_from(("all", "tcp", "icmp", "other")),
        st.sampled_from((None, "80, 443-445")),
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def _told(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what ``/v1`` may answer."""
    subnets = [
        {
            "subnet": ref,
            "cidr_ipv4": "10.0.0.0/24",
            "cidr_ipv6": draw(st.sampled_from((None, "2001:db8::/64"))),
            "gateway": draw(st.sampled_from((None, "internet_gateway", "egress_only_gateway"))),
            "is_open": draw(st.booleans()),
        }
        for ref in draw(st.lists(_refs, max_size=30, unique_by=lambda each: each["id"]))
    ]
    places = [
        {
            "place": number,
            "subnet": draw(st.sampled_from(subnets))["subnet"],
            "security_groups": draw(st.lists(_refs, max_size=3)),
            "is_balancer": draw(st.booleans()),
            "interfaces": draw(st.integers(1, 300)),
        }
        for number in range(draw(st.integers(0, 24)) if subnets else 0)
    ]
    numbers = st.integers(0, max(len(places) - 1, 0))
    flows = [
        {"source": source, "target": target, "ipv4": draw(_traffic), "ipv6": []}
        for source, target in (
            draw(st.lists(st.tuples(numbers, numbers), max_size=100)) if places else ()
        )
    ]
    return {
        "vpc": draw(_refs),
        "internet_gateway": draw(st.none() | _refs),
        "egress_only_gateway": draw(st.none() | _refs),
        "subnets": subnets,
        "places": places,
        "flows": flows,
    }


@settings(max_examples=times(30))
@given(_told())
def test_the_picture_is_well_formed_and_keeps_within_its_frame(told: dict[str, Any]) -> None:
    picture = ET.fromstring(str(vpc_map(told)))
    _, _, width, height = map(int, (picture.get("viewBox") or "").split())
    assert width == WIDTH
    for box in picture.iter("rect"):
        left, top, wide, high = (
            float(box.get(name) or 0) for name in ("x", "y", "width", "height")
        )
        assert left >= 0 <= top
        assert left + wide <= WIDTH
        assert top + high <= height
    drawn = [each for each in picture.iter("path") if "flow" in (each.get("class") or "")]
    assert len(drawn) <= MOST_FLOWS
    assert {each.tag for each in picture.iter()} <= {
        *("svg", "title", "desc", "defs", "marker", "path", "rect", "text")
    }


def test_traffic_in_words() -> None:
    assert traffic_in_words([{"protocol": "all", "ports": None}]) == "everything"
    parts: list[dict[str, Any]] = [
        {"protocol": "tcp", "ports": "80, 443-445"},
        {"protocol": "icmp", "ports": None},
        {"protocol": "other", "ports": None},
    ]
    assert traffic_in_words(parts) == "TCP 80, 443-445; ICMP; other protocols"
