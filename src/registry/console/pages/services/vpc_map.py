"""Draw a VPC: its subnets, their routes to the internet, and which of them reach each other.

The picture is made from the response of ``/v1``; the tables beside it say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

WIDTH: Final = 1000
MOST_SUBNETS: Final = 24
"""Maximum number of subnets that are drawn; the table has all."""
MOST_FLOWS: Final = 60
_LONGEST: Final = 44
"""Maximum characters of a name in the picture."""
_ROW: Final = 26
_HEAD: Final = 52
_GAP: Final = 18
_LEFT: Final = 190
_RIGHT: Final = 660
_BUSES: Final = {"internet_gateway": 60, "egress_only_gateway": 130}
_GATEWAYS: Final = {
    "internet_gateway": "Internet gateway",
    "egress_only_gateway": "Egress-only gateway",
}
_TOP: Final = 130
_ARCS: Final = (700, 960)
"""The x-coordinates between which flows are drawn."""

_SVG: Final = Markup(
    '<svg class="map" viewBox="0 0 {} {}" role="img" aria-labelledby="map-title map-about">'
    '<title id="map-title">{}</title><desc id="map-about">{}</desc>'
    '<defs><marker id="map-tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"'
    ' markerHeight="7" orient="auto-start-reverse"><path d="M0 0 10 5 0 10z"/></marker></defs>'
)
_BOX: Final = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="6"/>')
_TEXT: Final = Markup('<text class="{}" x="{}" y="{}">{}</text>')
_WAY: Final = Markup('<path class="way {}" d="{}"{}><title>{}</title></path>')
_END: Final = Markup(' marker-end="url(#map-tip)"')
_BOTH: Final = Markup(' marker-start="url(#map-tip)" marker-end="url(#map-tip)"')


def vpc_map(told: Mapping[str, Any]) -> Markup:
    """Draw a `VpcReachability` as SVG."""
    subnets = told["subnets"][:MOST_SUBNETS]
    tops, bottom = _tops(told, subnets)
    rows = {
        each["place"]: tops[each["subnet"]["id"]] + _HEAD + _ROW * at
        for at, each in _rows(told)
        if each["subnet"]["id"] in tops
    }
    picture = _SVG.format(WIDTH, bottom + _GAP, f"The VPC {told['vpc']['name']}", about(told))
    picture += _BOX.format("outside", 0, 0, WIDTH, 36) + _TEXT.format("", 16, 24, "The internet")
    picture += _BOX.format("vpc", 0, 84, WIDTH, bottom - 84 + _GAP // 2)
    for part in (*_gateways(told), *_drawn_subnets(told, subnets, tops), *_arcs(told, rows)):
        picture += part
    return picture + Markup("</svg>")


def about(told: Mapping[str, Any]) -> str:
    """Describe the picture in words, for screen readers."""
    ways = [each["gateway"] for each in told["subnets"]]
    opened = sum(each["is_open"] for each in told["subnets"])
    out = len(ways) - ways.count(None)
    said = (
        f"{len(ways)} subnets, of which {out} reach the internet and {opened} can be reached"
        f" from there; {len(told['flows'])} kinds of flows within the VPC. The tables below say"
        " the same."
    )
    is_cut = len(ways) > MOST_SUBNETS or len(told["flows"]) > MOST_FLOWS
    return f"{said} Not all of it is drawn." if is_cut else said


def traffic_in_words(traffic: Sequence[Mapping[str, Any]]) -> str:
    """Format traffic as in ``TCP 80, 443; ICMP``."""
    words = {"all": "everything", "other": "other protocols"}
    return "; ".join(
        " ".join(filter(None, (words.get(each["protocol"], each["protocol"].upper()), ports)))
        for each in traffic
        for ports in (each["ports"],)
    )


def place_in_words(place: Mapping[str, Any]) -> str:
    """Describe a place (interfaces with the same groups): the groups, and how many interfaces."""
    groups = ", ".join(each["name"] for each in place["security_groups"]) or "no group"
    kind = "balancer" if place["is_balancer"] else "interface"
    count = place["interfaces"]
    return f"{groups} ({count} {kind}{'' if count == 1 else 's'})"


def _rows(told: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each place with the number of its row in the box of its subnet."""
    used: dict[str, int] = {}
    for each in told["places"]:
        at = used.get(each["subnet"]["id"], 0)
        used[each["subnet"]["id"]] = at + 1
        yield at, each


def _tops(
    told: Mapping[str, Any], subnets: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, int], int]:
    """Return the top of each subnet's box by its id, and the bottom of the last box."""
    tops, at = {}, _TOP
    for each in subnets:
        tops[each["subnet"]["id"]] = at
        at += _HEAD + _ROW * _size(told, each) + _GAP
    return tops, at


def _size(told: Mapping[str, Any], subnet: Mapping[str, Any]) -> int:
    return sum(each["subnet"]["id"] == subnet["subnet"]["id"] for each in told["places"])


def _gateways(told: Mapping[str, Any]) -> Iterator[Markup]:
    for number, (kind, words) in enumerate(_GATEWAYS.items()):
        gateway = told[kind]
        if gateway is not None:
            left = 16 + 330 * number
            yield _BOX.format("gateway", left, 66, 310, 36)
            yield _TEXT.format("", left + 12, 90, _short(f"{words} {gateway['name']}", 34))
            ends = _END if kind == "egress_only_gateway" else _BOTH
            line = f"M{left + 155} 66V38"
            yield _WAY.format(kind.partition("_")[0], line, ends, f"{words}, to the internet")


def _drawn_subnets(
    told: Mapping[str, Any], subnets: Sequence[Mapping[str, Any]], tops: Mapping[str, int]
) -> Iterator[Markup]:
    for each in subnets:
        top = tops[each["subnet"]["id"]]
        width, height = _RIGHT - _LEFT, _HEAD + _ROW * _size(told, each)
        ranges = " ".join(filter(None, (each["cidr_ipv4"], each["cidr_ipv6"])))
        yield _BOX.format("subnet", _LEFT, top, width, height)
        yield _TEXT.format("name", _LEFT + 14, top + 21, _short(each["subnet"]["name"]))
        yield _TEXT.format("quiet", _LEFT + 14, top + 41, ranges)
        yield from _way_of(each, top + 24)
    for at, place in _rows(told):
        if place["subnet"]["id"] in tops:
            y = tops[place["subnet"]["id"]] + _HEAD + _ROW * at
            yield _BOX.format("place", _LEFT + 8, y - 2, _RIGHT - _LEFT - 16, _ROW - 4)
            yield _TEXT.format("small", _LEFT + 18, y + 14, _short(place_in_words(place)))


def _way_of(subnet: Mapping[str, Any], y: int) -> Iterator[Markup]:
    gateway = subnet["gateway"]
    if gateway is None:
        return
    words = f"{subnet['subnet']['name']} reaches the internet over IPv6"
    if subnet["is_open"]:
        words += ", which may begin there what security groups allow"
    else:
        words += ", which can begin nothing there"
    left = 16 + 330 * list(_GATEWAYS).index(gateway)
    bus = _BUSES[gateway]
    line = f"M{_LEFT} {y}H{bus}V{112 if gateway == 'egress_only_gateway' else 108}"
    line += f"H{left + 155}V104"
    ends = _BOTH if subnet["is_open"] else _END
    yield _WAY.format(gateway.partition("_")[0], line, ends, words)


def _arcs(told: Mapping[str, Any], rows: Mapping[int, int]) -> Iterator[Markup]:
    """Yield arcs for the flows between places, longer ones farther out."""
    names = {each["place"]: each for each in told["places"]}
    drawn = [each for each in told["flows"] if {each["source"], each["target"]} <= rows.keys()]
    flows = sorted(
        drawn[:MOST_FLOWS], key=lambda each: abs(rows[each["source"]] - rows[each["target"]])
    )
    first, last = _ARCS
    for number, flow in enumerate(flows):
        start, end = rows[flow["source"]] + 6, rows[flow["target"]] + 14
        out = first + (last - first) * (number + 1) // (len(flows) + 1)
        line = f"M{_RIGHT - 8} {start}C{out} {start} {out} {end} {_RIGHT - 6} {end}"
        words = f"{_full(names[flow['source']])} to {_full(names[flow['target']])}"
        yield _WAY.format("flow", line, _END, f"{words}: {flow_in_words(flow)}")


def flow_in_words(flow: Mapping[str, Any]) -> str:
    """Describe the allowed traffic of a flow, for both IP versions."""
    if flow["ipv4"] == flow["ipv6"]:
        return traffic_in_words(flow["ipv4"])
    named = (("IPv4", flow["ipv4"]), ("IPv6", flow["ipv6"]))
    return ", ".join(f"{traffic_in_words(of)} over {name}" for name, of in named if of)


def _full(place: Mapping[str, Any]) -> str:
    return f"{place['subnet']['name']}: {place_in_words(place)}"


def _short(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
