"""Evaluate rendered rules of nftables for one packet that begins a flow: read, not reasoned about.

It knows the words that `cloudcore.network.drivers.rules` writes, and raises for any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

Address = IPv4Address | IPv6Address

_PRIORITY = re.compile(r"type filter hook (\w+) priority (-?\d+); policy (accept|drop);")
_WORD = re.compile(r'"[^"]*"|[{},]|[^\s{},;]+')


@dataclass(frozen=True)
class Packet:
    """The first packet of a flow, as a hook of the VPC's namespace sees it."""

    source: Address
    target: Address
    protocol: str
    """``tcp``, ``udp``, ``icmp`` (also that of IPv6) or another name."""
    port: int
    iif: str = ""
    oif: str = ""


class Ruleset:
    """The rules of one table, read from its text."""

    def __init__(self, text: str) -> None:
        self.chains: dict[str, list[list[str]]] = {}
        self.hooks: dict[str, list[tuple[int, str]]] = {}
        self.sets: dict[str, Sequence[str]] = {}
        for name, body in re.findall(r"chain (\w+) \{(.*?)\n? *\}", _flat(text), flags=re.DOTALL):
            if based := _PRIORITY.search(body):
                self.hooks.setdefault(based[1], []).append((int(based[2]), name))
                assert based[3] == "drop"
            lines = [line for line in body.splitlines() if line.strip() and "hook" not in line]
            self.chains.setdefault(name, []).extend(_WORD.findall(_unflat(each)) for each in lines)
        for name, elements in re.findall(r"set (\w+) \{[^}]*elements = \{([^}]*)\}", text):
            self.sets[name] = [each.strip() for each in elements.split(",")]

    def lets(self, hook: str, packet: Packet) -> bool:
        """Return True if all base chains of a hook let a packet pass."""
        return all(self._verdict(name, packet) == "accept" for _, name in sorted(self.hooks[hook]))

    def _verdict(self, chain: str, packet: Packet) -> Literal["accept", "drop"]:
        return self._run(chain, packet) or "drop"

    def _run(self, chain: str, packet: Packet) -> Literal["accept", "drop"] | None:
        for words in self.chains[chain]:
            verdict = self._match(list(words), packet)
            if verdict is None:
                continue
            if verdict in {"accept", "drop"}:
                return verdict  # type: ignore[return-value]
            how, _, name = verdict.partition(" ")
            found = self._run(name, packet)
            if found is not None or how == "goto":
                return found or "drop"
        return None

    def _match(self, words: list[str], packet: Packet) -> str | None:
        """Return the verdict of a rule, None if it does not match."""
        while words:
            key = words.pop(0)
            if key in {"accept", "drop"}:
                return key
            if key in {"goto", "jump"}:
                return f"{key} {words.pop(0)}"
            if key in {"ip", "ip6", "meta", "ct", "tcp", "udp", "icmpv6"}:
                key = f"{key} {words.pop(0)}"
            value = _value(key, packet)
            if words[0] == "vmap":
                words.pop(0)
                return _find(self._choices(words), value)
            is_not = words[0] == "!="
            if is_not:
                words.pop(0)
            if _is_among(self._operand(words), value) == is_not:
                return None
        raise AssertionError("a rule without a verdict")

    def _operand(self, words: list[str]) -> Sequence[str]:
        first = words.pop(0)
        if first.startswith("@"):
            return self.sets.get(first[1:], ())
        if first != "{":
            listed = [first]
            while words and words[0] == ",":  # ct state new,invalid
                words.pop(0)
                listed.append(words.pop(0))
            return listed
        end = words.index("}")
        listed, words[:] = [each for each in words[:end] if each != ","], words[end + 1 :]
        return listed

    def _choices(self, words: list[str]) -> Mapping[str, str]:
        if words[0].startswith("@"):
            return {}  # no VIPs
        text = " ".join(words[1:-1])
        pairs = (each.split(" : ") for each in text.split(" , "))
        return {key.strip(): verdict.strip() for key, verdict in pairs}


def _flat(text: str) -> str:
    """Hide the braces inside rules, so that a chain ends at its own."""
    return "\n".join(
        line if line.lstrip().startswith(("chain", "table", "set", "map", "}")) else _hidden(line)
        for line in text.splitlines()
    )


def _hidden(line: str) -> str:
    return line.replace("{", "\x01").replace("}", "\x02")


def _unflat(line: str) -> str:
    return line.replace("\x01", "{").replace("\x02", "}")


def _value(key: str, packet: Packet) -> object:
    version = 4 if key.startswith("ip ") else 6 if key.startswith("ip6 ") else None
    if key in {"ip saddr", "ip6 saddr"}:
        return packet.source if packet.source.version == version else None
    if key in {"ip daddr", "ip6 daddr"}:
        return packet.target if packet.target.version == version else None
    if key == "meta l4proto":
        icmp = "icmp" if packet.source.version == 4 else "ipv6-icmp"
        return icmp if packet.protocol == "icmp" else packet.protocol
    if key in {"tcp dport", "udp dport"}:
        return packet.port if packet.protocol == key[:3] else None
    known = {"iifname": packet.iif, "oifname": packet.oif, "ct state": "new", "ip6 hoplimit": None}
    return known[key]


def _is_among(listed: Sequence[str], value: object) -> bool:
    return any(_is(each.strip('"'), value) for each in listed)


def _is(text: str, value: object) -> bool:
    if isinstance(value, IPv4Address | IPv6Address):
        return _holds(text, value)
    if isinstance(value, int):
        first, _, last = text.partition("-")
        return int(first) <= value <= int(last or first)
    return text == value


def _holds(text: str, address: Address) -> bool:
    network = ip_network(text) if "/" in text else ip_network(ip_address(text))
    assert isinstance(network, IPv4Network | IPv6Network)
    return address in network


def _find(choices: Mapping[str, str], value: object) -> str | None:
    for text, verdict in choices.items():
        if value is not None and _is(text.strip('"'), value):
            return verdict
    return None
