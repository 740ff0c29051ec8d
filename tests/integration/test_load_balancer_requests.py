"""Requests for load balancers: what they may say, whom they may name, and what they reserve."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import pytest

from cloudcore.db.base import Database
from cloudcore.quotas.limits import put_limit
from tests.balancers import (
    HTTP,
    HTTPS,
    OF_POOL,
    POOL,
    WEB,
    BalancerWorld,
    open_balancers,
    wanted,
)
from tests.control_plane import ACCOUNT, ALLOW_ALL
from tests.databases import on_both_databases


@pytest.fixture
async def world(database: Database) -> AsyncIterator[BalancerWorld]:
    """Return an account with a network, before its first load balancer."""
    async with open_balancers(database) as world:
        yield world


def listener(**changes: object) -> dict[str, object]:
    return {"listeners": [{**HTTP, **changes}]}


def backend(**changes: object) -> dict[str, object]:
    return {"backends": [{**WEB, **changes}]}


def target(**changes: object) -> dict[str, object]:
    return backend(targets=[changes])


def check(**changes: object) -> dict[str, object]:
    return backend(health_check=changes)


_BACKEND: Final = "backends[0]"
_CHECK: Final = f"{_BACKEND}.health_check"
_ADDRESS: Final = f"{_BACKEND}.targets[0].address"
_TARGET: Final = {"port": 1, "address": "10.0.1.9"}
OUTSIDE: Final = ("host", "fe80::1%eth0", "10.0.2.9", "127.0.0.1", "::ffff:10.0.1.9")
REFUSED: Final[tuple[tuple[Mapping[str, object], str], ...]] = (
    *((listener(port=wrong), "listeners[0].port") for wrong in (0, 65536)),
    (listener(protocol="udp"), "listeners[0].protocol"),
    (listener(backend="absent"), "listeners[0].backend"),
    (listener(protocol="tcp"), "listeners[0].backend"),
    (listener(protocol="https"), "listeners[0].certificate"),
    (listener(certificate="site"), "listeners[0].certificate"),
    *(({"listeners": wrong}, "listeners") for wrong in ([HTTP, HTTP], [])),
    ({"listeners": [{**HTTP, "port": each + 1} for each in range(11)]}, "listeners"),
    (backend(protocol="tcp"), "listeners[0].backend"),
    *((backend(name=wrong), f"{_BACKEND}.name") for wrong in ("Web\nbackend", "-")),
    ({"backends": [WEB, WEB]}, "backends"),
    ({"backends": [WEB, *({**WEB, "name": f"b{n}"} for n in range(20))]}, "backends"),
    (target(port=80), f"{_BACKEND}.targets[0]"),
    (target(port=80, address="10.0.1.9", pool="workers"), f"{_BACKEND}.targets[0]"),
    *((target(port=80, address=wrong), _ADDRESS) for wrong in OUTSIDE),
    (backend(targets=[_TARGET] * 2), f"{_BACKEND}.targets"),
    (backend(targets=[{**_TARGET, "port": n + 1} for n in range(101)]), f"{_BACKEND}.targets"),
    (check(protocol="tcp", path="/"), f"{_CHECK}.path"),
    *((check(protocol="http", path=path), f"{_CHECK}.path") for path in ("a", "/a b\r\nX: y")),
    (check(interval_seconds=0), f"{_CHECK}.interval_seconds"),
    (check(interval_seconds=2, timeout_seconds=3), f"{_CHECK}.timeout_seconds"),
    (check(healthy_threshold=11), f"{_CHECK}.healthy_threshold"),
    *(({"replica_count": wrong}, "replica_count") for wrong in (0, 5)),
    ({"tags": {"": "x"}}, "tags"),
)
"""What neither a creation nor a change may say."""
REFUSED_AT_FIRST: Final[tuple[tuple[Mapping[str, object], str], ...]] = (
    *(({"vip": wrong}, "vip") for wrong in ("198.51.100.1", "here", "192.0.2.0", "192.0.2.7")),
    ({"name": "No name"}, "name"),
    ({"subnet": "crn:network:local:other:subnet/app"}, "subnet"),
    ({"status": "active"}, "status"),
)


async def test_what_none_can_be_and_what_is_fixed_is_refused(world: BalancerWorld) -> None:
    """Even if what is fixed is equal."""
    made = await world.make(name="made")
    fixed = [
        ({each: made[each]}, each) for each in ("name", "subnet", "vip", "id", "node", "status")
    ]
    asked = [
        *(("POST", "", changes, field) for changes, field in (*REFUSED, *REFUSED_AT_FIRST)),
        *(("PATCH", f"/{made['id']}", changes, field) for changes, field in (*REFUSED, *fixed)),
    ]
    for method, path, changes, field in asked:
        answer = await world.ask(method, path, wanted(**changes) if method == "POST" else changes)
        assert answer.status_code == 400, (method, changes, answer.text)
        error = answer.json()["error"]
        assert (error["code"], error["params"]["field"]) == ("INVALID_INPUT", field), changes
    assert await world.show(made) == made
    assert (await world.ask("GET")).json()["meta"]["total"] == 1


async def test_the_same_target_in_two_forms_is_refused(world: BalancerWorld) -> None:
    answer = await world.ask("POST", "", wanted(**target(port=80, address="fe80::1%eth0")))
    assert "zone" in answer.json()["error"]["message"]
    pools = [{"pool": "workers", "port": 80}, {"pool": POOL, "port": 80}]
    answer = await world.ask("POST", "", wanted(**backend(targets=pools)))
    assert answer.json()["error"]["params"]["field"] == "backends[0].targets"
    addresses = [{"address": f"10.0.1.{each}", "port": 80} for each in (9, 10)]
    made = await world.make(**backend(targets=addresses))
    assert [each["address"] for each in made["backends"][0]["targets"]] == ["10.0.1.9", "10.0.1.10"]


NAMED: Final[dict[str, tuple[dict[str, object], dict[str, object]]]] = {
    "network:GetSubnet": ({"subnet": "absent"}, {}),
    "network:GetSecurityGroup": ({"security_groups": ["absent"]}, {"security_groups": ["open"]}),
    "certificate:GetCertificate": (
        {"listeners": [{**HTTPS, "certificate": "absent"}]},
        {"listeners": [HTTPS]},
    ),
    "compute:GetInstancePool": (
        backend(targets=[{"pool": "absent", "port": 80}]),
        {"backends": [OF_POOL]},
    ),
}
"""By the right to what is named: a request that names nothing, and what names something."""


async def test_what_a_request_names_must_exist_and_needs_the_right_to_get_it(
    world: BalancerWorld,
) -> None:
    made = await world.make(name="before")
    for right, (absent, changes) in NAMED.items():
        answer = await world.ask("POST", "", wanted(**absent))
        assert answer.status_code == 404, answer.text
        no = {"effect": "deny", "actions": [right], "resources": ["*"]}
        world.tokens.restrict("writer", ALLOW_ALL, no)
        answer = await world.ask("POST", "", wanted(**changes))
        assert answer.status_code == 403, answer.text
        if changes:
            assert (await world.ask("PATCH", f"/{made['id']}", changes)).status_code == 403
        assert (await world.ask("GET")).json()["meta"]["total"] == 1
        world.tokens.restrict("writer", ALLOW_ALL)


@on_both_databases
async def test_addresses_are_reserved_until_the_teardown_has_ended(world: BalancerWorld) -> None:
    """L3: a VIP is not allocated again before its reservation is released."""
    made = [await world.active(name=f"lb-{number}") for number in range(6)]
    assert [each["vip"] for each in made] == [f"192.0.2.{number}" for number in range(1, 7)]
    for asked, reason in ({}, "no_vips"), ({"vip": "192.0.2.3"}, "vip_taken"):
        answer = await world.ask("POST", "", wanted(**asked))
        assert (answer.status_code, answer.json()["error"]["params"]["reason"]) == (409, reason)
    other = await world.ask("POST", "", wanted(vip="192.0.2.3"), token="stranger")
    assert other.status_code == 409
    assert (await world.ask("DELETE", f"/{made[2]['id']}")).status_code == 202
    assert (await world.ask("POST", "", wanted())).status_code == 409
    await world.work()
    again = await world.make(vip="192.0.2.3")
    assert again["vip"] == "192.0.2.3"


async def test_a_name_is_free_when_the_record_is_gone(world: BalancerWorld) -> None:
    """L3: a name is reusable only after the record is gone."""
    made = await world.active()
    assert (await world.ask("POST", "", wanted())).status_code == 409
    await world.ask("DELETE", f"/{made['id']}")
    assert (await world.ask("POST", "", wanted())).status_code == 409
    await world.work()
    await world.make()


async def test_without_addresses_of_the_operator_there_are_none(world: BalancerWorld) -> None:
    object.__setattr__(world.needs.parts, "vips", ())
    answer = await world.ask("POST", "", wanted())
    assert answer.status_code == 409
    assert answer.json()["error"]["params"]["setting"] == "balancer_vips"


async def test_two_accounts_may_have_the_same_network(world: BalancerWorld) -> None:
    ours, theirs = await world.make(), await world.ask("POST", "", wanted(), token="stranger")
    await world.work()
    other = theirs.json()["load_balancer"]
    assert other["vip"] != ours["vip"]
    assert world.network.vips[other["vip"]] == other["vpc"]["id"] != ours["vpc"]["id"]


async def test_delete_is_202_without_a_body_and_then_404(world: BalancerWorld) -> None:
    """L1: 202 with a zero-length body, again while deleting, then 404; GET shows deleting."""
    made = await world.active()
    for _ in range(2):
        answer = await world.ask("DELETE", f"/{made['id']}")
        assert (answer.status_code, answer.content) == (202, b"")
        assert answer.headers.get("content-length", "0") == "0"
        assert (await world.state(made))[0] == "deleting"
    patched = await world.ask("PATCH", f"/{made['id']}", {"description": "new"})
    assert (patched.status_code, patched.json()["error"]["code"]) == (409, "CONFLICT")
    assert (await world.ask("GET", "?status=deleting")).json()["meta"]["total"] == 1
    await world.work()
    assert (await world.ask("GET", f"/{made['id']}")).status_code == 404
    assert (await world.ask("DELETE", f"/{made['id']}")).status_code == 404


async def test_a_change_of_words_alone_concerns_no_proxy(world: BalancerWorld) -> None:
    made = await world.active()
    world.proxies.calls.clear()
    changed = await world.change(made, description="The front.", tags={"a": "b"})
    assert (changed["status"], changed["description"]) == ("active", "The front.")
    again = await world.change(made, description="The front.")
    assert again["updated_at"] == changed["updated_at"]
    await world.work()
    assert world.proxies.calls == []
    cleared = await world.change(made, description=None, tags=None, replica_count=None)
    assert (cleared["description"], cleared["tags"], cleared["replica_count"]) == ("", {}, 2)


async def test_an_account_has_at_most_so_many(world: BalancerWorld) -> None:
    await world.database.write(put_limit, ACCOUNT, "load_balancers", 1, world.clock())
    await world.make()
    answer = await world.ask("POST", "", wanted(name="second"))
    assert answer.status_code == 403
    assert answer.json()["error"]["params"]["quota"] == "load_balancers"
