"""Render the nftables rules of a VPC's namespace.

The output is one transaction that replaces all rules of the table but keeps its base chains, so no
packet passes between the old rules and the new, and flows that both allow are not interrupted. All
names are generated here; they contain an underscore, so that none is an nftables keyword.

Three kinds of base chains see each packet, one after another. To accept a packet in one chain
passes it to the next; a drop is final.

`platform`: what no security group can override. It checks that a sender uses its own address, and
    which packets may pass to and from the internet, by the route tables; through an egress-only
    gateway, only replies come in.
`source`: the security groups of the sender.
`target`: the security groups of the receiver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final
from uuid import UUID

from cloudcore.network.driver import Direction, InterfacePlan, RulePlan, SubnetPlan, VpcPlan
from cloudcore.network.ranges import GLOBAL

TABLE: Final = "inet entrepot"
UPLINK: Final = "uplink"
"""Name of the link to the machine, in the namespace of a VPC."""
_ALL: Final = IPv6Network("::/0")

_BASE_CHAINS: Final = {
    f"{kind}_{hook}": f"type filter hook {hook} priority {priority}; policy drop;"
    for kind, priority, hooks in (
        ("platform", -10, ("forward", "input")),
        ("source", 0, ("forward", "input", "output")),
        ("target", 10, ("forward", "input", "output")),
    )
    for hook in hooks
}
_SETS: Final = {
    "set egress_only": "type ipv6_addr; flags interval;",
    "map vips_ipv4": "type ipv4_addr : verdict;",
    "map vips_ipv6": "type ipv6_addr : verdict;",
}
_ANSWERS: Final = "ct state established,related"
_PASSES: Final = f"{_ANSWERS} accept"
_BEGINNINGS: Final = "ct state new,invalid,untracked"
# Neighbour discovery (RFC 4861, section 7.1: what was forwarded has another hop limit).
_NEIGHBOURS: Final = (
    "ip6 hoplimit 255 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept"
)
_FROM_UPLINK: Final = f'iifname "{UPLINK}"'
_TO_UPLINK: Final = f'oifname "{UPLINK}"'
_SIDES: Final[Mapping[str, Direction]] = {"source": "outbound", "target": "inbound"}
_ICMP: Final = {"ip": "icmp", "ip6": "ipv6-icmp"}
_PEERS: Final[Mapping[Direction, str]] = {"inbound": "saddr", "outbound": "daddr"}

Vips = Mapping[IPv4Address | IPv6Address, str | None]
"""Maps the addresses where load balancers of a VPC listen to the interface whose groups decide
which flows may begin. None: all TCP flows."""


def short(of_id: str) -> str:
    """Return the last 12 hexadecimal digits of a UUID, which are random in each UUID version.

    Raise `ValueError` if `of_id` is not a UUID.
    """
    return UUID(of_id).hex[-12:]


def link_of(interface_id: str) -> str:
    """Return the name of an interface's link in the VPC's namespace."""
    return f"if{short(interface_id)}"


def is_routed(plan: VpcPlan, subnet: SubnetPlan) -> bool:
    """Return True if traffic is routed between a subnet and the internet."""
    return is_global(subnet) and any(existing_gateway(plan, target) for _, target in subnet.routes)


def is_egress_only(plan: VpcPlan, subnet: SubnetPlan) -> bool:
    """Return True if the default route of a subnet leads to the egress-only gateway.

    Return False if the subnet has no public addresses.
    """
    gateways = [
        existing_gateway(plan, target) for network, target in subnet.routes if network == _ALL
    ]
    return is_global(subnet) and gateways == ["egress_only_gateway"]


def chains_of(plan: VpcPlan) -> dict[str, list[str]]:
    """Map chain names to the rules of a VPC; the rules of VIPs are in nftables maps instead."""
    return {
        **_platform(plan),
        **_order_of_groups(plan),
        **_ways(plan),
        **_groups(plan),
        **_interfaces(plan),
    }


def _platform(plan: VpcPlan) -> dict[str, list[str]]:
    """Return the platform's rules, which no security group can override."""
    own = _by_link(plan, "iifname", "own")
    return {
        "platform_forward": ["ct state invalid drop", f"{_FROM_UPLINK} goto from_internet", *own],
        "platform_input": [
            'iifname "lo" accept',
            _NEIGHBOURS,
            "ct state invalid drop",
            *(f"{_FROM_UPLINK} {each}" for each in _own_senders(plan)),
            f"{_FROM_UPLINK} ip6 daddr @egress_only {_BEGINNINGS} drop",
            f"{_FROM_UPLINK} accept",
            *own,
        ],
        "from_internet": [
            f"{_TO_UPLINK} drop",
            *_own_senders(plan),
            f"ip6 daddr @egress_only {_BEGINNINGS} drop",
            *_choice("ip6 daddr", _by_subnet(plan, "back")),
            "drop",
        ],
        "own_address": [f"{_TO_UPLINK} goto to_internet", "accept"],
        "to_internet": [
            f"ip6 daddr != {GLOBAL} drop",
            *_choice("ip6 saddr", _by_subnet(plan, "out")),
            "drop",
        ],
        "vip_open": ["meta l4proto tcp accept", "drop"],
    }


def _order_of_groups(plan: VpcPlan) -> dict[str, list[str]]:
    """Return the chains that pass a packet to its sender's groups, then to its receiver's.

    Load balancers run in the namespace itself, so their packets pass `input` and `output`.
    """
    of_source = _by_link(plan, "iifname", "source")
    to_target = _by_link(plan, "oifname", "target")
    return {
        "source_forward": [_PASSES, f"{_FROM_UPLINK} accept", *of_source],
        "target_forward": [_PASSES, f"{_TO_UPLINK} accept", *to_target],
        "source_input": [*_local("iifname"), f"{_FROM_UPLINK} accept", *of_source],
        "target_input": [
            *_local("iifname"),
            "ip daddr vmap @vips_ipv4",
            "ip6 daddr vmap @vips_ipv6",
            f"{_FROM_UPLINK} drop",
            *_by_address(plan, "daddr", "target"),
        ],
        "source_output": [*_local("oifname"), *_by_address(plan, "saddr", "source")],
        "target_output": [*_local("oifname"), *to_target],
    }


def _ways(plan: VpcPlan) -> dict[str, list[str]]:
    """Return the chains that decide what may pass from each subnet to the internet and back."""
    routed = [each for each in plan.subnets if is_routed(plan, each)]
    return {
        f"{way}_{short(each.id)}": list(rules(plan, each))
        for each in routed
        for way, rules in (("out", _out), ("back", _back))
    }


def _groups(plan: VpcPlan) -> dict[str, list[str]]:
    """Return the chains with the flows that security groups allow to begin.

    The members of a group are listed once, in chains to which rules about the group jump. If each
    of these rules listed the members, a large group would have more rules than the kernel can load
    in time.
    """
    members = _members(plan.interfaces)
    rules = [rule for group in plan.groups for rule in group.rules]
    peers = {(rule.direction, rule.peer): None for rule in rules if rule.peer in members}
    return {
        f"group_{side}_{short(group.id)}": [
            _rule(each)
            for each in group.rules
            if each.direction == direction
            and (each.peer in members or not isinstance(each.peer, str))
        ]
        for group in plan.groups
        for side, direction in _SIDES.items()
    } | {
        _peer_chain(direction, peer): [
            _accept(f"{version} {_PEERS[direction]} {{ {', '.join(addresses)} }}")
            for version, addresses in members[peer].items()
        ]
        for direction, peer in peers
        if isinstance(peer, str)
    }


def _interfaces(plan: VpcPlan) -> dict[str, list[str]]:
    """Return each interface's chains: its own source addresses, and jumps to its groups."""
    chains = {}
    groups = {each.id for each in plan.groups}
    for each in plan.interfaces:
        name = short(each.id)
        own = [f"{key} saddr {address} goto own_address" for key, address in _addresses(each)]
        chains[f"own_{name}"] = [*own, "drop"]
        mine = [short(group) for group in dict.fromkeys(each.group_ids) if group in groups]
        for side in _SIDES:
            chains[f"{side}_{name}"] = [*(f"jump group_{side}_{group}" for group in mine), "drop"]
    return chains


def render(plan: VpcPlan, vips: Vips | None = None, stale: Iterable[str] = ()) -> str:
    """Return the input of `nft -f` for a plan, as one transaction.

    `stale` are the names of existing chains of the table; the transaction deletes those that the
    plan does not use.
    """
    chains = chains_of(plan)
    egress_only = [str(each.cidr_ipv6) for each in plan.subnets if is_egress_only(plan, each)]
    elements = {"egress_only": egress_only} | _vip_elements(vips or {}, chains)
    gone = sorted(set(stale) - set(chains))
    lines = [
        f"table {TABLE} {{",
        *(f"  {kind} {{ {what} }}" for kind, what in _SETS.items()),
        *(f"  chain {name} {{ {_BASE_CHAINS.get(name, '')} }}" for name in chains),
        "}",
        f"flush table {TABLE}",
        f"flush set {TABLE} egress_only",
        f"flush map {TABLE} vips_ipv4",
        f"flush map {TABLE} vips_ipv6",
        *(f"delete chain {TABLE} {name}" for name in gone),
        f"table {TABLE} {{",
    ]
    for kind, what in _SETS.items():
        if listed := ", ".join(elements[kind.split()[1]]):
            lines.append(f"  {kind} {{ {what} elements = {{ {listed} }} }}")
    for name, rules in chains.items():
        lines += [f"  chain {name} {{", *(f"    {rule}" for rule in rules), "  }"]
    return "\n".join([*lines, "}", ""])


def render_vips(vips: Vips, chains: Container[str]) -> str:
    """Return the input of `nft -f` that replaces only the VIPs; `chains` are the table's chains."""
    lines = []
    for name, elements in _vip_elements(vips, chains).items():
        lines.append(f"flush map {TABLE} {name}")
        if elements:
            lines.append(f"add element {TABLE} {name} {{ {', '.join(elements)} }}")
    return "\n".join([*lines, ""])


def _vip_elements(vips: Vips, chains: Container[str]) -> dict[str, list[str]]:
    """Map each nftables map of VIPs to its elements; skip a VIP whose interface has no chain."""
    found: dict[str, list[str]] = {"vips_ipv4": [], "vips_ipv6": []}
    for vip, interface_id in sorted(vips.items(), key=lambda each: str(each[0])):
        chain = "vip_open" if interface_id is None else f"target_{short(interface_id)}"
        if chain in chains:
            found[f"vips_ipv{vip.version}"].append(f"{vip} : goto {chain}")
    return found


def _local(key: str) -> list[str]:
    """Return the rules for packets that always pass: loopback, neighbour discovery and replies.

    `key` is ``iifname`` or ``oifname``.
    """
    return [f'{key} "lo" accept', _NEIGHBOURS, _PASSES]


def _choice(key: str, choices: Iterable[tuple[str, str]]) -> list[str]:
    """Return the rule that maps `key` by these (value, verdict) pairs; no rule without choices."""
    listed = ", ".join(f"{value} : {verdict}" for value, verdict in choices)
    return [f"{key} vmap {{ {listed} }}"] if listed else []


def _own_senders(plan: VpcPlan) -> list[str]:
    """Return rules that drop packets from outside with a source address of the VPC."""
    ranges = {"ip": plan.cidr_ipv4, "ip6": plan.cidr_ipv6}
    return [f"{key} saddr {each} drop" for key, each in ranges.items() if each is not None]


def _by_link(plan: VpcPlan, key: str, chain: str) -> list[str]:
    return _choice(
        key,
        (
            (f'"{link_of(each.id)}"', f"goto {chain}_{short(each.id)}")
            for each in plan.interfaces
            if not each.is_balancer
        ),
    )


def _by_address(plan: VpcPlan, key: str, chain: str) -> list[str]:
    found: dict[str, list[tuple[str, str]]] = {"ip": [], "ip6": []}
    for each in plan.interfaces:
        for version, address in _addresses(each) if each.is_balancer else ():
            found[version].append((str(address), f"goto {chain}_{short(each.id)}"))
    return [rule for version in found for rule in _choice(f"{version} {key}", found[version])]


def is_global(subnet: SubnetPlan) -> bool:
    """Return True if a subnet has public addresses."""
    return subnet.cidr_ipv6 is not None and subnet.cidr_ipv6.subnet_of(GLOBAL)


def existing_gateway(plan: VpcPlan, target: str) -> str | None:
    """Return the target of a route if that gateway exists; None if not, or if it is ``local``.

    Both kinds of gateways need the internet gateway.
    """
    there = {"internet_gateway": True, "egress_only_gateway": plan.egress_only_gateway}
    return target if plan.internet_gateway and there.get(target, False) else None


def _by_subnet(plan: VpcPlan, chain: str) -> Iterator[tuple[str, str]]:
    for each in plan.subnets:
        if is_routed(plan, each):
            yield str(each.cidr_ipv6), f"goto {chain}_{short(each.id)}"


def _routes(plan: VpcPlan, subnet: SubnetPlan) -> Iterator[tuple[IPv6Network, str | None]]:
    """Yield (destination, gateway) of a subnet's routes, longest prefix first."""
    routes = [
        (network, existing_gateway(plan, target))
        for network, target in subnet.routes
        if isinstance(network, IPv6Network)
    ]
    yield from sorted(routes, key=lambda each: (-each[0].prefixlen, str(each[0])))


def _out(plan: VpcPlan, subnet: SubnetPlan) -> Iterator[str]:
    for network, gateway in _routes(plan, subnet):
        yield f"ip6 daddr {network} {'accept' if gateway else 'drop'}"
    yield "drop"


def _back(plan: VpcPlan, subnet: SubnetPlan) -> Iterator[str]:
    for network, gateway in _routes(plan, subnet):
        if gateway == "egress_only_gateway":
            yield f"ip6 saddr {network} {_ANSWERS} accept"
        yield f"ip6 saddr {network} {'accept' if gateway == 'internet_gateway' else 'drop'}"
    yield "drop"


def _addresses(interface: InterfacePlan) -> Iterator[tuple[str, IPv4Address | IPv6Address]]:
    if interface.address_ipv4 is not None:
        yield "ip", interface.address_ipv4
    if interface.address_ipv6 is not None:
        yield "ip6", interface.address_ipv6


def _members(interfaces: Sequence[InterfacePlan]) -> Mapping[object, Mapping[str, list[str]]]:
    """Map each group id to its members' addresses, by IP version."""
    found: defaultdict[object, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for interface in interfaces:
        for version, address in _addresses(interface):
            for group_id in dict.fromkeys(interface.group_ids):
                found[group_id][version].append(str(address))
    return found


def _peer_chain(direction: Direction, group_id: str) -> str:
    return f"group_{'from' if direction == 'inbound' else 'to'}_{short(group_id)}"


def _rule(rule: RulePlan) -> str:
    """Return the nftables rule for a rule of a security group."""
    peer = rule.peer
    if isinstance(peer, IPv4Network | IPv6Network):
        version = "ip" if isinstance(peer, IPv4Network) else "ip6"
        return _accept(f"{version} {_PEERS[rule.direction]} {peer}", _what(rule, _ICMP[version]))
    what = _what(rule, "{ icmp, ipv6-icmp }")
    if peer is None:
        return _accept(what)
    return f"{what} jump {_peer_chain(rule.direction, peer)}".lstrip()


def _what(rule: RulePlan, icmp: str) -> str:
    if rule.protocol == "all":
        return ""
    protocol = {"icmp": icmp, "tcp": "tcp", "udp": "udp"}[rule.protocol]
    if rule.protocol == "icmp" or rule.port_from is None:
        return f"meta l4proto {protocol}"
    last = rule.port_from if rule.port_to is None else rule.port_to
    return f"{protocol} dport {rule.port_from:d}-{last:d}"


def _accept(*matches: str) -> str:
    return " ".join([*filter(None, matches), "accept"])
