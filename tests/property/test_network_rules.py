"""The rules of every VPC are taken by the kernel, and have no text that is not made here."""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcore.network.driver import (
    GroupPlan,
    InterfacePlan,
    RulePlan,
    RulesRefused,
    Target,
    VpcPlan,
)
from cloudcore.network.drivers import nft_check
from cloudcore.network.drivers.nft_check import can_check, check_rules
from cloudcore.network.drivers.rules import chains_of, is_egress_only, render
from tests.network_plans import interface, new_id, plans, subnet, vpc, with_gateways
from tests.soak import times
from tests.tools import missing, require_tool

_VIPS = st.dictionaries(
    st.sampled_from((IPv4Address("192.0.2.7"), IPv6Address("2001:db8:ffff::7"))),
    st.none() | st.integers(0, 4),
)


SOME: Final = settings(max_examples=times(40))


def _vips(
    plan: VpcPlan, chosen: dict[IPv4Address | IPv6Address, int | None]
) -> dict[IPv4Address | IPv6Address, str | None]:
    ids = [each.id for each in plan.interfaces] or ["00000000-0000-7000-8000-0000000000aa"]
    return {vip: None if i is None else ids[i % len(ids)] for vip, i in chosen.items()}


@settings(max_examples=times(20))
@given(plans(), plans(), _VIPS)
def test_the_kernel_takes_the_rules_of_every_plan(
    plan: VpcPlan, before: VpcPlan, chosen: dict[IPv4Address | IPv6Address, int | None]
) -> None:
    """Also where other rules are, all of which are replaced in the same transaction."""
    require_tool("nft")
    require_tool("unshare")
    if not can_check():
        missing("network namespaces")
    rules = render(plan, _vips(plan, chosen), chains_of(before))
    check_rules(render(before) + rules)


_MADE = re.compile(r"(own|source|target|group_(?:source|target|from|to)|out|back)_[0-9a-f]{12}")
_LINK = re.compile(r'"(if[0-9a-f]{12}|uplink|lo)"')
_WORDS = frozenset(
    re.findall(
        r"\S+",
        """
        table inet entrepot set map chain type filter hook forward input output priority -10 policy
        flags interval elements flush delete ipv4_addr ipv6_addr verdict egress_only vips_ipv4
        vips_ipv6 platform_forward platform_input source_forward source_input source_output
        target_forward target_input target_output from_internet to_internet own_address vip_open
        @egress_only @vips_ipv4 @vips_ipv6 ct state established related new invalid untracked
        iifname oifname ip ip6 saddr daddr ! vmap goto jump accept drop meta l4proto icmp ipv6-icmp
        icmpv6 hoplimit nd-neighbor-solicit nd-neighbor-advert tcp udp dport :
        """,
    )
)


@SOME
@given(plans(), _VIPS)
def test_rules_have_only_words_numbers_networks_and_names_made_here(
    plan: VpcPlan, chosen: dict[IPv4Address | IPv6Address, int | None]
) -> None:
    for word in re.split(r"[\s{};,=]+", render(plan, _vips(plan, chosen))):
        if word and word not in _WORDS and not _MADE.fullmatch(word) and not _LINK.fullmatch(word):
            _check_numeric(word)


def _check_numeric(word: str) -> None:
    first, _, last = word.partition("-")
    if first.isascii() and first.isdigit() and (not last or last.isdigit()):
        assert int(first) <= int(last or first) <= 65535
    elif "/" in word:
        assert str(ip_network(word)) == word
    else:
        assert str(ip_address(word)) == word


_HOSTILE = ("x; flush ruleset", 'a" accept', "", "{}", "../x", "$(id)", "accept\n", "0" * 64)


@SOME
@given(st.sampled_from(_HOSTILE), plans())
def test_a_text_that_is_no_id_is_never_rendered(hostile: str, plan: VpcPlan) -> None:
    """A group of another VPC, or none at all, has no members; what is no id makes no rules."""
    groups = tuple(
        replace(each, rules=(*each.rules, RulePlan("inbound", "tcp", 1, 2, hostile)))
        for each in plan.groups
    )
    assert render(replace(plan, groups=groups)) == render(plan)
    for broken in (
        replace(plan, groups=(GroupPlan(hostile),)),
        replace(plan, interfaces=(InterfacePlan(hostile, hostile),)),
    ):
        with pytest.raises(ValueError, match="UUID"):
            render(broken)


@SOME
@given(plans())
def test_only_subnets_whose_route_table_points_at_the_egress_only_gateway_are_in_its_set(
    plan: VpcPlan,
) -> None:
    """N3. Two VPCs never share one, since each has rules of its own, in a namespace of its own."""
    line = next(
        (
            each
            for each in render(plan).splitlines()
            if each.startswith("  set egress_only {") and "elements" in each
        ),
        "elements = { }",
    )
    listed = {each for each in re.split(r"[{},\s]+", line.partition("elements =")[2]) if each}
    wanted = {
        str(each.cidr_ipv6)
        for each in plan.subnets
        if plan.internet_gateway
        and plan.egress_only_gateway
        and each.cidr_ipv6 is not None
        and each.cidr_ipv6.subnet_of(IPv6Network("2000::/3"))
        and (IPv6Network("::/0"), "egress_only_gateway") in each.routes
    }
    assert listed == wanted
    assert {str(each.cidr_ipv6) for each in plan.subnets if is_egress_only(plan, each)} == wanted


@SOME
@given(plans())
def test_a_gateway_owns_no_address_and_nothing_is_translated(plan: VpcPlan) -> None:
    """N4."""
    rules = render(plan).split()
    assert not {"nat", "snat", "dnat", "masquerade", "redirect"} & set(rules)
    with_one = replace(plan, internet_gateway=True, egress_only_gateway=True)
    without = replace(plan, internet_gateway=False, egress_only_gateway=False)
    ipv4 = re.compile(r".*\bip [sd]addr.*")
    assert ipv4.findall(render(with_one)) == ipv4.findall(render(without))  # IPv4 is untouched


@SOME
@given(plans())
def test_drops_of_the_platform_come_before_security_groups_which_cannot_change_them(
    plan: VpcPlan,
) -> None:
    """N2."""
    open_groups = tuple(
        replace(each, rules=(RulePlan("inbound", "all"), RulePlan("outbound", "all")))
        for each in plan.groups
    )
    platform = ("platform_forward", "platform_input", "from_internet", "to_internet", "own_address")
    before, after = chains_of(plan), chains_of(replace(plan, groups=open_groups))
    assert {each: before[each] for each in platform} == {each: after[each] for each in platform}
    text = render(plan)
    for hook in ("forward", "input"):
        assert (
            f"chain platform_{hook} {{ type filter hook {hook} priority -10; policy drop; }}"
            in text
        )
        assert (
            f"chain target_{hook} {{ type filter hook {hook} priority 10; policy drop; }}" in text
        )
        # Whatever they jump to: no chain of a group is reached from the platform's.
        assert "group_" not in "".join(before[f"platform_{hook}"])


def test_rules_that_the_kernel_does_not_take_are_refused() -> None:
    require_tool("nft")
    if not can_check():
        missing("network namespaces")
    with pytest.raises(RulesRefused, match="fwd"):
        check_rules("table inet entrepot { chain fwd { } }\n")


def test_a_route_to_a_narrower_network_wins_over_one_to_a_wider() -> None:
    where = subnet("10.0.0.0/24", "2001:db8::/64", "egress_only_gateway")
    narrower: tuple[tuple[IPv4Network | IPv6Network, Target], ...] = (
        (IPv6Network("2600::/16"), "internet_gateway"),
        (IPv6Network("2601::/16"), "local"),
        (IPv4Network("0.0.0.0/0"), "local"),
    )
    where = replace(where, routes=(*where.routes, *narrower))
    plan = replace(with_gateways(vpc(where)), interfaces=(interface(where, 4),))
    name = where.id[-12:]
    assert chains_of(plan)[f"out_{name}"] == [
        "ip6 daddr 2600::/16 accept",
        "ip6 daddr 2601::/16 drop",
        "ip6 daddr ::/0 accept",
        "drop",
    ]
    assert chains_of(plan)[f"back_{name}"] == [
        *("ip6 saddr 2600::/16 accept", "ip6 saddr 2601::/16 drop"),
        *("ip6 saddr ::/0 ct state established,related accept", "ip6 saddr ::/0 drop", "drop"),
    ]


def test_the_members_of_a_group_stand_once_however_many_rules_name_it() -> None:
    """Else what one account may write, 10,000 rules about a group of 50, takes 12 seconds."""
    named = GroupPlan(new_id())
    rules = tuple(RulePlan("inbound", "tcp", port, port, named.id) for port in range(1, 51))
    groups = (named, GroupPlan(new_id(), rules), GroupPlan(new_id(), rules))
    where = subnet("10.0.0.0/24")
    plan = replace(vpc(where, groups=groups), interfaces=(interface(where, 77, named),))
    chains = chains_of(plan)
    of_groups = [rule for name, each in chains.items() if "group_" in name for rule in each]
    assert sum("10.0.0.77" in each for each in of_groups) == 1
    member = f"group_from_{named.id[-12:]}"
    assert chains[member] == ["ip saddr { 10.0.0.77 } accept"]
    assert of_groups.count(f"tcp dport 50-50 jump {member}") == 2


def test_rules_that_take_too_long_to_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_tool("nft")
    monkeypatch.setattr(nft_check, "_SECONDS", 0)
    with pytest.raises(RulesRefused, match="did not read them within"):
        check_rules("table inet entrepot {}\n")
