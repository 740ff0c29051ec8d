"""Networks in the kernel: instances, the router of a VPC, the machine and the internet."""

from __future__ import annotations

import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Final

import pytest

from cloudcore.errors import Unavailable
from cloudcore.network.driver import (
    GroupPlan,
    InterfacePlan,
    RulePlan,
    RulesRefused,
    Target,
    VpcPlan,
)
from cloudcore.network.drivers import namespaces
from cloudcore.network.drivers.links import GUEST, ROUTER
from cloudcore.network.drivers.namespaces import set_sysctl, within
from cloudcore.network.drivers.nftables import Nftables
from cloudcore.network.drivers.rules import UPLINK, link_of, short
from cloudcore.nodes.node import DriverUnusable
from tests.network_lab import (
    CLOSED,
    GLANCE,
    INTERNET_ADDRESS,
    OPEN,
    PATIENCE,
    Lab,
    icmp,
    next_icmp,
    open_lab,
    ping,
    reach,
    socket_in,
    streaming,
    tcp,
    udp,
)
from tests.network_plans import EVERYTHING, OUTBOUND, interface, new_id, subnet, vpc, with_gateways

PACKET_TOO_BIG: Final = 2  # RFC 4443, section 3.2
IPV6_MTU_DISCOVER: Final = 23
IPV6_MTU: Final = 24


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Have a machine, where the test is, and an internet."""
    async with open_lab(tmp_path) as made:
        yield made


def one_instance(
    rules: tuple[RulePlan, ...] = EVERYTHING, gateway: Target = "egress_only_gateway"
) -> tuple[VpcPlan, InterfacePlan]:
    """Return a VPC without gateways, whose subnet is routed to one, and its instance."""
    group = GroupPlan(new_id(), rules)
    where = subnet("10.0.0.0/24", "2001:db8:1::/64", gateway)
    instance = interface(where, 4, group)
    plan = replace(vpc(where, groups=(group,)), interfaces=(instance,))
    return replace(plan, cidr_ipv6=IPv6Network("2001:db8:1::/56")), instance


async def test_an_egress_only_gateway_lets_out_and_never_in(lab: Lab) -> None:
    """Before, with a gateway, and after it is deleted."""
    plan, instance = one_instance()
    host = await lab.begin(plan, instance)
    lab.force_routes(plan)
    lab.check_ways(host, instance, out=False)

    await lab.driver.apply(with_gateways(plan))
    lab.check_ways(host, instance, out=True)

    await lab.driver.apply(plan)
    lab.force_routes(plan)
    lab.check_ways(host, instance, out=False)


async def test_no_route_beside_that_to_the_egress_only_gateway_lets_anyone_in(lab: Lab) -> None:
    """Of the internet, a narrower one leads to another gateway, or but some of it to this one."""
    plan, instance = one_instance()
    narrower = IPv6Network("2600::/16")
    host = await lab.begin(with_gateways(plan), instance)
    where = plan.subnets[0]
    for routes in (
        (*where.routes, (narrower, "internet_gateway")),
        ((narrower, "egress_only_gateway"),),
    ):
        changed = replace(plan, subnets=(replace(where, routes=routes),))
        await lab.driver.apply(with_gateways(changed))
        lab.check_ways(host, instance, out=True)


async def test_an_internet_gateway_lets_in_what_security_groups_let(lab: Lab) -> None:
    """So nothing but the rules keeps the internet out elsewhere."""
    plan, instance = one_instance(gateway="internet_gateway")
    host = await lab.begin(with_gateways(plan, egress_only=False), instance)
    lab.check_ways(host, instance, out=True, into=True)
    closed = replace(plan, groups=(replace(plan.groups[0], rules=OUTBOUND),))
    await lab.driver.apply(with_gateways(closed, egress_only=False))
    lab.check_ways(host, instance, out=True)


async def test_an_interface_that_was_not_applied_yet_lets_nothing_pass(lab: Lab) -> None:
    """A VPC is closed before it is open."""
    plan, instance = one_instance(gateway="internet_gateway")
    plan = with_gateways(plan)
    await lab.driver.apply(replace(plan, interfaces=()))
    host = await lab.add(plan, instance)
    lab.check_ways(host, instance, out=False)
    await lab.driver.apply(plan)
    assert reach(host, lab.internet, INTERNET_ADDRESS, hopes=True) == OPEN


async def test_sources_that_are_no_global_addresses_or_not_ones_own_are_dropped(lab: Lab) -> None:
    """ULA sources never leave, and nobody sends from another's address."""
    group = GroupPlan(new_id(), EVERYTHING)
    own = subnet("10.0.0.0/24", "2001:db8:1::/64", "egress_only_gateway")
    ula = subnet("10.0.1.0/24", "fd00:1::/64", "egress_only_gateway")
    first, second = interface(own, 4, group), interface(own, 5, group)
    private = interface(ula, 4, group)
    plan = with_gateways(vpc(own, ula, groups=(group,)))
    plan = replace(plan, interfaces=(first, second, private))
    hosts = await lab.begin_all(plan)
    lab.force_routes(plan)
    assert udp(hosts[2], lab.internet, INTERNET_ADDRESS, GLANCE) == "nothing"
    assert udp(hosts[2], hosts[0], str(first.address_ipv6)) == "answers"  # within the VPC it may
    for stolen in (str(second.address_ipv6), "fd00:1::9", "2600::77"):
        lab.give_address(hosts[0], stolen)
        for target, to in ((lab.internet, INTERNET_ADDRESS), (hosts[2], str(private.address_ipv6))):
            assert udp(hosts[0], target, to, GLANCE, sender=stolen) == "nothing"
    assert (
        udp(hosts[0], lab.internet, INTERNET_ADDRESS, sender=str(first.address_ipv6)) == "answers"
    )


async def test_nobody_outside_sends_from_an_address_of_the_vpc(lab: Lab) -> None:
    """Or it would be taken for a member of a security group."""
    group_id = new_id()
    group = GroupPlan(
        group_id, (RulePlan("inbound", "all", peer=group_id), RulePlan("outbound", "all"))
    )
    where = subnet("10.0.0.0/24", "2001:db8:1::/64", "internet_gateway")
    first, second = interface(where, 4, group), interface(where, 5, group)
    balancer = replace(interface(where, 9, group), is_balancer=True)
    plan = with_gateways(vpc(where, groups=(group,)))
    plan = replace(
        plan, cidr_ipv6=IPv6Network("2001:db8:1::/56"), interfaces=(first, second, balancer)
    )
    await lab.driver.apply(plan)
    vips = ("203.0.113.7", "2001:db8:ffff::7")
    for vip in vips:
        await lab.driver.add_vip(plan.id, vip, balancer.id)
    one, other = await lab.add(plan, first), await lab.add(plan, second)
    assert udp(other, one, str(first.address_ipv6)) == "answers"
    for stolen in (str(second.address_ipv4), str(second.address_ipv6)):
        lab.give_address(lab.internet, stolen, "wan")
    stolen = str(second.address_ipv6)
    assert udp(lab.internet, one, str(first.address_ipv6), GLANCE, sender=stolen) == "nothing"
    for vip, member in zip(vips, (second.address_ipv4, second.address_ipv6), strict=True):
        router = lab.router(plan)
        assert tcp(other, router, vip) == "answers"
        assert udp(lab.internet, router, vip, GLANCE, sender=str(member)) == "nothing"


async def test_packet_too_big_of_an_own_flow_passes_and_no_other(lab: Lab) -> None:
    plan, instance = one_instance()
    plan = with_gateways(plan)
    host = await lab.begin(plan, instance)
    lab.narrow_internet(1300)  # the machine says so then, as a router on the way
    with (
        icmp(host, INTERNET_ADDRESS) as messages,
        icmp(lab.internet, INTERNET_ADDRESS) as stranger,
        socket_in(host, socket.SOCK_DGRAM, INTERNET_ADDRESS) as flow,
    ):
        flow.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, 2)  # never in fragments
        flow.connect((INTERNET_ADDRESS, 9))
        # One about a flow that is not: 40 bytes of header, 8 of UDP.
        inside = instance.address_ipv6
        assert inside is not None
        about = struct.pack("!IHBB", 6 << 28, 8, socket.IPPROTO_UDP, 64)
        about += inside.packed + IPv6Address(INTERNET_ADDRESS).packed
        about += struct.pack("!HHHH", 4567, 9, 8, 0)
        stranger.sendto(struct.pack("!BBHI", PACKET_TOO_BIG, 0, 0, 1280) + about, (str(inside), 0))
        marker = secrets.token_bytes(1390)
        flow.send(marker)
        message = next_icmp(messages, PACKET_TOO_BIG)
        assert struct.unpack("!I", message[4:8]) == (1300,)
        assert marker[:64] in message
        assert flow.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU) == 1300


async def test_a_long_stream_goes_on_while_all_about_it_changes(lab: Lab) -> None:
    """Other routes, groups, gateways' descriptions; the ruleset is never flushed."""
    plan, instance = one_instance()
    plan = with_gateways(plan)
    other = subnet("10.0.9.0/24", "2001:db8:1:9::/64", "egress_only_gateway")
    host = await lab.begin(plan, instance)
    group = plan.groups[0]
    changed = replace(
        plan,
        subnets=(*plan.subnets, other),
        groups=(replace(group, rules=OUTBOUND), GroupPlan(new_id(), EVERYTHING)),
        interfaces=(instance, interface(other, 7, group)),
    )
    with streaming(host, lab.internet, INTERNET_ADDRESS) as stream:
        for number in range(12):
            before = stream.received
            await lab.driver.apply((changed, plan, plan)[number % 3])
            stream.await_more_than(before)
    assert stream.received == stream.sent > 0
    assert reach(lab.internet, host, str(instance.address_ipv6), hopes=False) == CLOSED


async def test_the_flows_of_a_gateway_end_with_it(lab: Lab) -> None:
    plan, instance = one_instance()
    host = await lab.begin(with_gateways(plan), instance)
    with (
        socket_in(lab.internet, socket.SOCK_DGRAM, INTERNET_ADDRESS) as server,
        socket_in(host, socket.SOCK_DGRAM, INTERNET_ADDRESS) as client,
    ):
        server.bind((INTERNET_ADDRESS, 0))
        client.connect(server.getsockname())
        client.send(b"1")
        server.settimeout(PATIENCE)
        _, address = server.recvfrom(1)
        server.sendto(b"2", address)
        client.settimeout(PATIENCE)
        assert client.recv(1) == b"2"
        await lab.driver.apply(plan)
        lab.force_routes(plan)
        server.sendto(b"3", address)
        client.send(b"4")
        for each in (client, server):
            each.settimeout(GLANCE)
            with pytest.raises(TimeoutError):
                each.recv(1)


async def test_two_vpcs_have_the_same_addresses_and_never_meet(lab: Lab) -> None:
    """They share no set either, as each has rules of its own."""
    made = []
    for _ in range(2):
        group = GroupPlan(new_id(), EVERYTHING)
        where = subnet("10.0.0.0/24")
        plan = vpc(where, groups=(group,))
        first, second = interface(where, 4, group), interface(where, 5, group)
        plan = replace(plan, cidr_ipv6=None, interfaces=(first, second))
        made.append(await lab.begin_all(plan))
    for ours, others in (made, reversed(made)):
        assert udp(ours[0], ours[1], "10.0.0.5") == "answers"
        assert tcp(ours[1], ours[0], "10.0.0.4") == "answers"
        assert udp(ours[0], others[1], "10.0.0.5", GLANCE) == "nothing"
        assert udp(ours[0], lab.machine, "192.0.2.1", GLANCE) == "nothing"


async def test_security_groups_say_who_may_begin_within_a_subnet(lab: Lab) -> None:
    clients = GroupPlan(new_id(), OUTBOUND)
    silent = GroupPlan(new_id(), (RulePlan("inbound", "all"),))
    servers = GroupPlan(
        new_id(),
        (
            RulePlan("inbound", "tcp", 80, None, clients.id),
            RulePlan("inbound", "udp", 5000, 5009, IPv4Network("10.0.0.6/32")),
            RulePlan("inbound", "icmp", None, None, IPv6Network("2001:db8:1::6/128")),
        ),
    )
    where = subnet("10.0.0.0/24", "2001:db8:1::/64")
    client, server = interface(where, 4, clients), interface(where, 5, servers)
    sixth, mute = interface(where, 6, clients), interface(where, 7, silent)
    plan = vpc(where, groups=(clients, servers, silent))
    plan = replace(plan, interfaces=(client, server, sixth, mute))
    a, b, c, d = await lab.begin_all(plan)
    for to in ("10.0.0.5", "2001:db8:1::5"):
        assert tcp(a, b, to, port=80) == "answers"
        assert tcp(a, b, to, GLANCE, port=81) == "nothing"
        assert tcp(d, b, to, GLANCE, port=80) == "nothing"
    assert udp(c, b, "10.0.0.5", port=5009) == "answers"
    assert udp(c, b, "10.0.0.5", GLANCE, port=5010) == "nothing"
    assert udp(a, b, "10.0.0.5", GLANCE, port=5009) == "nothing"
    assert ping(c, b, "2001:db8:1::5") == "answers"
    assert ping(a, b, "2001:db8:1::5", GLANCE) == "nothing"
    assert udp(a, d, "10.0.0.7") == "answers"  # what it answers needs no rule
    assert udp(b, d, "10.0.0.7", GLANCE) == "nothing"  # its groups let nothing out
    assert udp(d, a, "10.0.0.4", GLANCE) == "nothing"
    # A member that is gone is none any more, and nothing of it is left.
    assert client.id[-12:] in lab.ruleset(plan)
    await lab.driver.apply(replace(plan, interfaces=(server, sixth, mute)))
    assert client.id[-12:] not in lab.ruleset(plan)
    assert tcp(c, b, "10.0.0.5", port=80) == "answers"
    assert tcp(a, b, "10.0.0.5", GLANCE, port=80) == "nothing"


async def test_a_balancer_listens_at_its_vip_and_dials_what_groups_let_it(lab: Lab) -> None:
    group = GroupPlan(new_id(), (RulePlan("inbound", "tcp", 80), RulePlan("outbound", "all")))
    behind = GroupPlan(new_id(), (RulePlan("inbound", "tcp", 8080, None, group.id),))
    where = subnet("10.0.0.0/24", "2001:db8:1::/64", "internet_gateway")
    balancer = replace(interface(where, 9, group), is_balancer=True)
    backend = interface(where, 4, behind)
    plan = with_gateways(vpc(where, groups=(group, behind)))
    plan = replace(plan, cidr_ipv6=IPv6Network("2001:db8:1::/56"), interfaces=(balancer, backend))
    # The VIP is there before the balancer's own address, and yet none that it dials from.
    await lab.driver.apply(replace(plan, interfaces=(backend,)))
    host = await lab.add(plan, backend)
    await lab.driver.add_vip(plan.id, "203.0.113.7", balancer.id)
    await lab.driver.apply(plan)
    router = lab.router(plan)
    for vip in ("203.0.113.7", "2001:db8:ffff::7"):
        await lab.driver.add_vip(plan.id, vip, balancer.id)
        await lab.driver.add_vip(plan.id, vip, balancer.id)
        assert tcp(lab.internet, router, vip, port=80) == "answers"
        assert tcp(lab.internet, router, vip, GLANCE, port=81) == "nothing"
        await lab.driver.apply(plan)  # which keeps it
        assert tcp(lab.internet, router, vip, port=80) == "answers"
        await lab.driver.add_vip(plan.id, vip)  # without an interface, all that is TCP
        assert tcp(lab.internet, router, vip, port=81) == "answers"
        assert udp(lab.internet, router, vip, GLANCE) == "nothing"
    for to in ("10.0.0.4", "2001:db8:1::4"):
        assert tcp(router, host, to, port=8080) == "answers"
        assert tcp(router, host, to, GLANCE, port=8081) == "nothing"
    # From outside it has its VIPs alone, and it dials nobody there.
    assert tcp(lab.internet, router, "2001:db8:1::9", GLANCE, port=80) == "nothing"
    assert tcp(router, lab.internet, INTERNET_ADDRESS, GLANCE) == "nothing"
    await lab.driver.remove_vip(plan.id, "203.0.113.7")
    await lab.driver.remove_vip(plan.id, "203.0.113.7")
    assert tcp(lab.internet, router, "203.0.113.7", GLANCE, port=80) == "nothing"
    assert tcp(lab.internet, router, "2001:db8:ffff::7", port=80) == "answers"


async def test_rules_that_are_refused_leave_those_before_in_force(lab: Lab) -> None:
    plan, instance = one_instance()
    plan = with_gateways(plan)
    host = await lab.begin(plan, instance)
    before = lab.ruleset(plan)
    twice = replace(plan.subnets[0], id=new_id())
    wrong = replace(plan, subnets=(*plan.subnets, twice))
    with pytest.raises(RulesRefused, match="2001:db8:1::/64"):
        lab.driver.refuse(wrong)
    with pytest.raises(RulesRefused, match="2001:db8:1::/64"):
        await lab.driver.apply(wrong)
    assert lab.ruleset(plan) == before
    assert reach(host, lab.internet, INTERNET_ADDRESS, hopes=True) == OPEN


async def test_no_instance_fills_the_machines_table_of_neighbours(lab: Lab) -> None:
    """The kernel has one table of neighbours for all namespaces, and an entry for each asked."""
    plan, instance = one_instance()
    other = interface(plan.subnets[0], 5, plan.groups[0])
    plan = with_gateways(replace(plan, interfaces=(instance, other)))
    hosts = await lab.begin_all(plan)
    router, uplink = lab.router(plan), f"vpc{short(plan.id)}"
    for namespace, link, target in (
        *((host, "eth0", ROUTER) for host in hosts),
        *((router, link_of(each.id), GUEST) for each in (instance, other)),
        (router, UPLINK, ROUTER),
        (lab.machine, uplink, GUEST),
    ):
        scope = within(namespace, partial(socket.if_nametoindex, link))
        assert lab.leads_to(namespace, target, link)
        with socket_in(namespace, socket.SOCK_DGRAM, target) as sender, suppress(OSError):
            sender.sendto(b"?", ("fe80::3", 9, 0, scope))
        assert "fe80::3" not in lab.neighbours(namespace)
    inside = str(other.address_ipv6)
    assert reach(hosts[0], hosts[1], inside, hopes=True) == OPEN


async def test_a_gateway_owns_no_address_and_translates_none(lab: Lab) -> None:
    plan, instance = one_instance()
    host = await lab.begin(plan, instance)
    before = [lab.addresses(each) for each in (lab.router(plan), lab.machine, host)]
    await lab.driver.apply(with_gateways(plan))
    assert [lab.addresses(each) for each in (lab.router(plan), lab.machine, host)] == before
    assert "nat" not in lab.ruleset(plan).split()
    with socket_in(lab.internet, socket.SOCK_DGRAM, INTERNET_ADDRESS) as server:
        server.bind((INTERNET_ADDRESS, 0))
        server.settimeout(PATIENCE)
        with socket_in(host, socket.SOCK_DGRAM, INTERNET_ADDRESS) as client:
            client.sendto(b"?", server.getsockname())
            assert server.recvfrom(1)[1][0] == str(instance.address_ipv6)


async def test_another_process_finds_what_there_is_and_takes_away_only_its_own(lab: Lab) -> None:
    namespaces_before, links_before = lab.census()
    plan, instance = one_instance()
    plan = with_gateways(plan)
    host = await lab.begin(plan, instance)
    await lab.driver.add_vip(plan.id, "203.0.113.7")
    strange = Nftables(lab.folder / "of-another-install")
    assert await strange.known() == []
    again = Nftables(lab.folder)
    assert (await again.known(), again.has(plan.id)) == ([plan.id], True)
    lab.meddle(plan)
    await again.apply(plan)
    lab.check_ways(host, instance, out=True)
    await again.detach(plan.id, instance.id)
    await again.detach(plan.id, instance.id)
    assert reach(host, lab.internet, INTERNET_ADDRESS, hopes=False) == CLOSED
    # An instance that is started again has another namespace, and the same interface.
    host = await lab.add(plan, instance)
    second = await lab.add(plan, instance)
    assert reach(second, lab.internet, INTERNET_ADDRESS, hopes=True) == OPEN
    assert reach(host, lab.internet, INTERNET_ADDRESS, hopes=False) == CLOSED
    for _ in range(2):
        await again.remove(plan.id)
    assert (await again.known(), again.has(plan.id)) == ([], False)
    lab.forget_hosts()
    assert lab.census() == (namespaces_before, links_before)
    assert not [each.name for each in lab.folder.iterdir() if each.suffix]
    with pytest.raises(Unavailable, match="not there yet"):
        await lab.driver.attach(plan.id, instance, lab.machine)


async def test_what_a_machine_lacks_is_said_in_one_line(lab: Lab) -> None:
    lab.driver.check()
    for name, words in (
        ("ipv4/ip_forward", "net.ipv4.ip_forward=1"),
        ("ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding=1"),
    ):
        within(lab.machine, partial(set_sysctl, name, 0))
        with pytest.raises(DriverUnusable) as refused:
            lab.driver.check()
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)
        within(lab.machine, partial(set_sysctl, name, 1))
    lab.driver.check()


async def test_a_service_with_mounts_of_its_own_is_told_so(lab: Lab) -> None:
    """Its namespaces would be lost with it."""
    check = (
        "from pathlib import Path; from cloudcore.network.drivers.nftables import Nftables;"
        f" Nftables(Path({str(lab.folder)!r})).check()"
    )
    first = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; true', "sh"]
    for own, said in (([], ""), (["unshare", "--mount"], "ProtectSystem")):
        command = [*first, *own, sys.executable, "-c", check]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: ASYNC221
        assert said in ran.stderr.rpartition("DriverUnusable")[2]
        assert bool(ran.stderr) is bool(said)


async def test_a_namespace_that_has_vanished_is_made_again(lab: Lab) -> None:
    """Also if somebody still has the old one, with the other end of the uplink."""
    plan, instance = one_instance()
    plan = with_gateways(plan)
    host = await lab.begin(plan, instance)
    with lab.router(plan).open("rb"):
        namespaces.remove(lab.router(plan))
        assert not lab.driver.has(plan.id)
        lab.router(plan).touch()  # what is left where a machine died while it made one
        assert not lab.driver.has(plan.id)
        await lab.driver.apply(plan)
        await lab.driver.attach(plan.id, instance, host)
    assert lab.driver.has(plan.id)
    assert reach(host, lab.internet, INTERNET_ADDRESS, hopes=True) == OPEN
