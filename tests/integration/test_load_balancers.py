"""Load balancers: what requests may say, what follows from them, and what their proxies do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs
from sqlalchemy import text

from cloudcore.certificate.rows import ROWS as CERTIFICATES
from cloudcore.certificate.services import CERTIFICATES as OF_CERTIFICATES
from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.driver import ProxyFailed, ReplicaMetrics
from cloudcore.loadbalancer.family import LOADBALANCER
from cloudcore.loadbalancer.load_balancer import MOST_REPLICAS
from cloudcore.loadbalancer.workflow import pool_changed
from cloudcore.network import rows as network
from cloudcore.nodes.rows import _note_batch
from tests.balancers import (
    HTTPS,
    NAMESPACE,
    OF_POOL,
    POOL,
    BalancerWorld,
    Instance,
    assert_nothing_left,
    open_balancers,
    wanted,
)
from tests.control_plane import ACCOUNT, OTHER_ACCOUNT
from tests.databases import on_both_databases

pytestmark = on_both_databases

TCP: Final = {"port": 5432, "protocol": "tcp", "backend": "db"}
DB: Final = {"name": "db", "protocol": "tcp", "targets": [{"address": "10.0.1.7", "port": 5432}]}
WEB: Final[dict[str, Any]] = wanted()["backends"][0]  # type: ignore[index]
HTTP: Final[dict[str, Any]] = wanted()["listeners"][0]  # type: ignore[index]


@pytest.fixture
async def world(database: Database) -> AsyncIterator[BalancerWorld]:
    """Return an account with a network, before its first load balancer."""
    async with open_balancers(database) as world:
        yield world


async def test_one_is_created_and_becomes_active(world: BalancerWorld) -> None:
    answer = await world.ask("POST", "", wanted())
    assert answer.status_code == 202
    made = answer.json()["load_balancer"]
    assert answer.headers["location"] == f"/v1/load-balancers/{made['id']}"
    assert (made["status"], made["vip"], made["node"]) == ("provisioning", "192.0.2.1", "machine-1")
    assert made["subnet"]["crn"].endswith(":subnet/app")
    assert made["vpc"]["crn"].endswith(":vpc/net")
    assert made["replicas"] == []
    assert made["backends"][0]["health_check"] == {
        "protocol": "tcp",
        "interval_seconds": 5,
        "timeout_seconds": 2,
        "healthy_threshold": 2,
        "unhealthy_threshold": 3,
    }
    await world.work()
    found = await world.show(made)
    assert (found["status"], found["faults"]) == ("active", [])
    assert found["replicas"] == [{"number": 1, "is_alive": True}, {"number": 2, "is_alive": True}]
    assert world.network.vips == {"192.0.2.1": made["vpc"]["id"]}
    running = world.proxies.running
    assert sorted(running) == [(made["id"], 1), (made["id"], 2)]
    plan = running[made["id"], 1].plan
    assert running[made["id"], 1].netns == NAMESPACE
    assert (plan.vip, plan.listeners[0].port) == ("192.0.2.1", 80)
    assert [each.address for each in plan.backends[0].targets] == ["10.0.1.9"]


def listener(**changes: object) -> dict[str, object]:
    return {"listeners": [{**HTTP, **changes}]}


def backend(**changes: object) -> dict[str, object]:
    return {"backends": [{**WEB, **changes}]}


def target(**changes: object) -> dict[str, object]:
    return backend(targets=[changes])


def check(**changes: object) -> dict[str, object]:
    return backend(health_check=changes)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (listener(port=0), "listeners[0].port"),
        (listener(port=65536), "listeners[0].port"),
        (listener(protocol="udp"), "listeners[0].protocol"),
        (listener(backend="absent"), "listeners[0].backend"),
        (listener(protocol="tcp"), "listeners[0].backend"),
        (listener(protocol="https"), "listeners[0].certificate"),
        (listener(certificate="site"), "listeners[0].certificate"),
        ({"listeners": [HTTP, HTTP]}, "listeners"),
        ({"listeners": []}, "listeners"),
        ({"listeners": [{**HTTP, "port": each + 1} for each in range(11)]}, "listeners"),
        ({**backend(protocol="tcp")}, "listeners[0].backend"),
        (backend(name="Web\nbackend"), "backends[0].name"),
        (backend(name="-"), "backends[0].name"),
        ({"backends": [WEB, WEB]}, "backends"),
        ({"backends": [WEB, *({**WEB, "name": f"b{n}"} for n in range(20))]}, "backends"),
        (target(port=80), "backends[0].targets[0]"),
        (target(port=80, address="10.0.1.9", pool="workers"), "backends[0].targets[0]"),
        (target(port=80, address="host"), "backends[0].targets[0].address"),
        (target(port=80, address="fe80::1%eth0"), "backends[0].targets[0].address"),
        (target(port=80, address="10.0.2.9"), "backends[0].targets[0].address"),
        (target(port=80, address="127.0.0.1"), "backends[0].targets[0].address"),
        (target(port=80, address="::ffff:10.0.1.9"), "backends[0].targets[0].address"),
        (backend(targets=[{"port": 1, "address": "10.0.1.9"}] * 2), "backends[0].targets"),
        (
            backend(targets=[{"port": n + 1, "address": "10.0.1.9"} for n in range(101)]),
            "backends[0].targets",
        ),
        (check(protocol="tcp", path="/"), "backends[0].health_check.path"),
        (check(protocol="http", path="health"), "backends[0].health_check.path"),
        (check(protocol="http", path="/a b\r\nX: y"), "backends[0].health_check.path"),
        (check(interval_seconds=0), "backends[0].health_check.interval_seconds"),
        (
            check(interval_seconds=2, timeout_seconds=3),
            "backends[0].health_check.timeout_seconds",
        ),
        (check(healthy_threshold=11), "backends[0].health_check.healthy_threshold"),
        ({"replica_count": 0}, "replica_count"),
        ({"replica_count": 5}, "replica_count"),
        ({"vip": "198.51.100.1"}, "vip"),
        ({"vip": "here"}, "vip"),
        ({"vip": "192.0.2.0"}, "vip"),
        ({"vip": "192.0.2.7"}, "vip"),
        ({"name": "No name"}, "name"),
        ({"tags": {"": "x"}}, "tags"),
        ({"subnet": "crn:network:local:other:subnet/app"}, "subnet"),
        ({"status": "active"}, "status"),
    ],
)
async def test_what_none_can_be_is_refused(
    world: BalancerWorld, changes: dict[str, object], field: str
) -> None:
    answer = await world.ask("POST", "", wanted(**changes))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["params"]["field"]) == ("INVALID_INPUT", field)
    if field in ("vip", "name", "subnet", "status"):
        return
    made = await world.make()
    changed = await world.ask("PATCH", f"/{made['id']}", changes)
    assert changed.status_code == 400, changed.text
    assert changed.json()["error"]["params"]["field"] == field
    assert await world.show(made) == made


@pytest.mark.parametrize("field", ["name", "subnet", "vip", "id", "node", "status"])
async def test_what_is_fixed_is_refused_even_if_equal(world: BalancerWorld, field: str) -> None:
    made = await world.make()
    answer = await world.ask("PATCH", f"/{made['id']}", {field: made[field]})
    assert (answer.status_code, answer.json()["error"]["params"]["field"]) == (400, field)


async def test_an_address_has_no_zone(world: BalancerWorld) -> None:
    answer = await world.ask("POST", "", wanted(**target(port=80, address="fe80::1%eth0")))
    assert "zone" in answer.json()["error"]["message"]


async def test_the_same_target_in_two_forms_is_refused(world: BalancerWorld) -> None:
    pools = [{"pool": "workers", "port": 80}, {"pool": POOL, "port": 80}]
    answer = await world.ask("POST", "", wanted(**backend(targets=pools)))
    assert answer.json()["error"]["params"]["field"] == "backends[0].targets"
    addresses = [{"address": "10.0.1.9", "port": 80}, {"address": "10.0.1.10", "port": 80}]
    made = await world.make(**backend(targets=addresses))
    assert [each["address"] for each in made["backends"][0]["targets"]] == ["10.0.1.9", "10.0.1.10"]


@pytest.mark.parametrize(
    "changes",
    [
        {"subnet": "absent"},
        {"security_groups": ["absent"]},
        {"listeners": [{**HTTPS, "certificate": "absent"}]},
        backend(targets=[{"pool": "absent", "port": 80}]),
    ],
)
async def test_what_a_request_names_must_exist(
    world: BalancerWorld, changes: dict[str, object]
) -> None:
    answer = await world.ask("POST", "", wanted(**changes))
    assert answer.status_code == 404, answer.text
    assert (await world.ask("GET")).json()["load_balancers"] == []


@pytest.mark.parametrize(
    ("denied", "changes"),
    [
        ("network:GetSubnet", {}),
        ("network:GetSecurityGroup", {"security_groups": ["open"]}),
        ("certificate:GetCertificate", {"listeners": [HTTPS]}),
        ("compute:GetInstancePool", {"backends": [OF_POOL]}),
    ],
)
async def test_naming_something_needs_the_right_to_get_it(
    world: BalancerWorld, denied: str, changes: dict[str, object]
) -> None:
    made = await world.make(name="before")
    no = {"effect": "deny", "actions": [denied], "resources": ["*"]}
    world.tokens.restrict("writer", {"effect": "allow", "actions": ["*"], "resources": ["*"]}, no)
    answer = await world.ask("POST", "", wanted(**changes))
    assert answer.status_code == 403, answer.text
    if changes:
        assert (await world.ask("PATCH", f"/{made['id']}", changes)).status_code == 403
    assert (await world.ask("GET")).json()["meta"]["total"] == 1


async def test_addresses_are_reserved_until_the_teardown_has_ended(world: BalancerWorld) -> None:
    """L3: a VIP is not allocated again before its reservation is released."""
    made = [await world.active(name=f"lb-{number}") for number in range(6)]
    assert [each["vip"] for each in made] == [f"192.0.2.{number}" for number in range(1, 7)]
    full = await world.ask("POST", "", wanted())
    assert (full.status_code, full.json()["error"]["params"]["reason"]) == (409, "no_vips")
    asked = await world.ask("POST", "", wanted(vip="192.0.2.3"))
    assert (asked.status_code, asked.json()["error"]["params"]["reason"]) == (409, "vip_taken")
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
        assert (await world.show(made))["status"] == "deleting"
    patched = await world.ask("PATCH", f"/{made['id']}", {"description": "new"})
    assert (patched.status_code, patched.json()["error"]["code"]) == (409, "CONFLICT")
    assert (await world.ask("GET", "?status=deleting")).json()["meta"]["total"] == 1
    await world.work()
    assert (await world.ask("GET", f"/{made['id']}")).status_code == 404
    assert (await world.ask("DELETE", f"/{made['id']}")).status_code == 404


@pytest.mark.parametrize("state", ["provisioning", "active", "updating", "degraded", "failed"])
async def test_it_is_deleted_in_every_state(world: BalancerWorld, state: str) -> None:
    """L1: DELETE is taken in every state, and nothing is left."""
    made = await world.make()
    if state != "provisioning":
        await world.work()

    def set_state(tx: Connection) -> None:
        current = rows.ROWS.lock(tx, ACCOUNT, made["id"])
        rows.ROWS.save(tx, structs.replace(current, status=state))

    await world.database.write(set_state)
    assert (await world.ask("DELETE", f"/{made['id']}")).status_code == 202
    await world.work()
    assert (await world.ask("GET", f"/{made['id']}")).status_code == 404
    await assert_nothing_left(world)


async def test_a_certificate_in_use_stays(world: BalancerWorld) -> None:
    """L3: a certificate in use by a load balancer cannot be deleted."""
    made = await world.active(listeners=[HTTPS])
    crn = made["listeners"][0]["certificate"]["crn"]
    assert crn.endswith(":certificate/site")
    assert await deletion(world, "site") == [made["crn"]]
    await world.change(made, listeners=[{**HTTPS, "certificate": "other"}])
    # Both, as the proxies serve the one until they have the other.
    assert await deletion(world, "site") == await deletion(world, "other") == [made["crn"]]
    await world.work()
    assert await deletion(world, "other") == [made["crn"]]
    assert await deletion(world, "site") == []
    files = world.proxies.running[made["id"], 2].certificates
    assert list(files.values()) == [b"certificate of other\nkey of other\n"]


async def test_a_certificate_that_was_never_served_is_free_at_once(world: BalancerWorld) -> None:
    made = await world.active(listeners=[HTTPS])
    await world.change(made, listeners=[{**HTTPS, "certificate": "other"}])
    await world.change(made, listeners=[HTTPS])
    assert await deletion(world, "other") == []
    await world.work()
    assert await deletion(world, "site") == [made["crn"]]


async def deletion(world: BalancerWorld, name: str) -> list[str]:
    """Return what refuses to delete a certificate; delete nothing."""

    class NotDone(Exception):
        pass

    def remove(tx: Connection) -> None:
        found = CERTIFICATES.find_named(tx, ACCOUNT, "local", name)
        assert found is not None
        OF_CERTIFICATES.remove(tx, found, 0)
        raise NotDone

    try:
        await world.database.write(remove)
    except Conflict as error:
        return list(error.params["used_by"])
    except NotDone:
        return []
    raise AssertionError


async def test_a_renewed_certificate_is_reloaded(world: BalancerWorld) -> None:
    made = await world.active(listeners=[HTTPS])
    await world.look()
    world.proxies.calls.clear()
    await world.look()
    assert world.proxies.calls == []  # nothing has changed

    def renew(tx: Connection) -> None:
        found = CERTIFICATES.find_named(tx, ACCOUNT, "local", "site")
        assert found is not None
        new = structs.replace(found, fingerprint="2" * 64, certificate_pem="the next one\n")
        CERTIFICATES.save(tx, new)

    await world.database.write(renew)
    await world.look()
    assert world.proxies.calls == ["apply 1", "apply 2", "stop 3", "stop 4"]
    files = world.proxies.running[made["id"], 1].certificates
    assert list(files.values()) == [b"the next one\nkey of site\n"]
    assert (await world.show(made))["status"] == "active"
    world.proxies.calls.clear()
    await world.look()
    assert world.proxies.calls == []


async def test_a_certificate_that_is_not_issued_is_waited_for(world: BalancerWorld) -> None:
    issued = await world.database.read(CERTIFICATES.find_named, ACCOUNT, "local", "site")
    assert issued is not None
    none: dict[str, Any] = dict.fromkeys(("certificate_pem", "private_key", "expires_at"))
    waiting = structs.replace(
        issued, source="acme", issuer="embedded", status="issuing", fingerprint=None, **none
    )

    def begin(tx: Connection) -> None:
        CERTIFICATES.remove(tx, issued, 0)
        CERTIFICATES.add(tx, waiting)

    await world.database.write(begin)
    made = await world.make(listeners=[HTTPS])
    await world.work()
    found = await world.show(made)
    assert found["status"] == "provisioning"
    assert [each["code"] for each in found["faults"]] == ["CERTIFICATE_NOT_ISSUED"]
    done = structs.replace(waiting, **{each: getattr(issued, each) for each in none})
    done = structs.replace(done, status="active", fingerprint=issued.fingerprint)
    await world.database.write(CERTIFICATES.save, done)
    await world.work(after=60)
    found = await world.show(made)
    assert (found["status"], found["faults"]) == ("active", [])


async def test_what_is_served_stays_while_the_key_of_the_account_cannot_be_used(
    world: BalancerWorld,
) -> None:
    made = await world.active(listeners=[HTTPS])
    world.keys.failure = Conflict("the key is disabled")
    await world.change(made, replica_count=3)
    await world.work()
    found = await world.show(made)
    (fault,) = found["faults"]
    assert (found["status"], fault["code"]) == ("updating", "CERTIFICATE_UNUSABLE")
    assert "the key is disabled" in fault["message"]
    assert len(world.proxies.running) == 2
    world.keys.failure = None
    await world.work(after=60)
    found = await world.show(made)
    assert (found["status"], found["faults"]) == ("active", [])


async def test_a_change_reaches_the_proxies(world: BalancerWorld) -> None:
    made = await world.active()
    changed = await world.change(made, listeners=[HTTP, TCP], backends=[WEB, DB])
    assert changed["status"] == "updating"
    await world.work()
    found = await world.show(made)
    assert found["status"] == "active"
    plan = world.proxies.running[made["id"], 2].plan
    assert [each.port for each in plan.listeners] == [80, 5432]
    fewer = await world.change(made, replica_count=1)
    assert fewer["replica_count"] == 1
    await world.work()
    assert sorted(world.proxies.running) == [(made["id"], 1)]
    assert (await world.show(made))["replicas"] == [{"number": 1, "is_alive": True}]


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


async def test_security_groups_are_those_of_its_interface(world: BalancerWorld) -> None:
    made = await world.active(security_groups=["open", "default"])
    assert [each["name"] for each in made["security_groups"]] == ["open", "default"]
    assert await groups(world, made) == ["open", "default"]
    await world.change(made, security_groups=["open"])
    assert await groups(world, made) == ["open"]


@on_both_databases
async def test_without_groups_everybody_reaches_its_listeners(world: BalancerWorld) -> None:
    made = await world.active()
    assert world.network.ruled_by[made["vip"]] is None
    ruled = await world.change(made, security_groups=["open"])
    await world.work()
    assert world.network.ruled_by[made["vip"]] is not None
    await world.change(ruled, security_groups=[])
    await world.work()
    assert world.network.ruled_by[made["vip"]] is None


async def groups(world: BalancerWorld, made: dict[str, Any]) -> list[str]:
    """Return the groups of the interface of a load balancer."""

    def read(tx: Connection) -> list[str]:
        (found,) = network.of_vpc(tx, network.INTERFACES, ACCOUNT, made["vpc"]["id"])
        assert (found.owner, found.is_balancer) == (made["crn"], True)
        return [each.name for each in found.security_groups]

    return await world.database.read(read)


async def test_the_role_may_read_its_certificates_and_report_and_nothing_else(
    world: BalancerWorld,
) -> None:
    made = await world.active(listeners=[HTTPS])
    (policy,) = world.roles.roles.values()
    assert policy == {
        "version": "1",
        "statements": [
            {
                "effect": "allow",
                "actions": ["loadbalancer:PutLoadBalancerMetrics"],
                "resources": [made["crn"]],
            },
            {
                "effect": "allow",
                "actions": ["certificate:GetCertificate"],
                "resources": [made["listeners"][0]["certificate"]["crn"]],
            },
        ],
    }
    await world.change(made, listeners=[HTTP])
    await world.work()
    (policy,) = world.roles.roles.values()
    assert len(policy["statements"]) == 1  # type: ignore[arg-type]


async def test_it_follows_the_instances_of_a_pool(world: BalancerWorld) -> None:
    folder = Path("/var/lib/instances/x/ports")
    one, two = Instance("i-1", "10.0.1.21"), Instance("i-2", None, folder)
    world.pools.instances = [one]
    made = await world.active(backends=[OF_POOL])
    assert made["backends"][0]["targets"][0]["pool"]["name"] == "workers"
    assert await places(world, made) == ["10.0.1.21"]
    world.pools.instances = [one, two, Instance("i-3", "10.0.1.23", is_ready=False)]
    await world.database.write(pool_changed, ACCOUNT, POOL, world.clock())
    await world.work()
    assert (await world.show(made))["status"] == "active"
    assert await places(world, made) == ["10.0.1.21", str(folder / "8080")]
    # One that goes gets no new connections, and one that never was ready gets none at all.
    for drains in ([True, False], [False, True]):
        both = zip((one, two), drains, strict=True)
        world.pools.instances = [each._replace(is_ready=not is_last) for each, is_last in both]
        await world.database.write(pool_changed, ACCOUNT, POOL, world.clock())
        await world.work()
        plan = world.proxies.running[made["id"], 1].plan
        assert [each.is_draining for each in plan.backends[0].targets] == drains
    world.pools.instances = [two]
    await world.database.write(pool_changed, ACCOUNT, POOL, world.clock())
    await world.work()
    assert await places(world, made) == [str(folder / "8080")]
    health = (await world.show(made))["backends"][0]["health"]
    assert health == [{"port": 8080, "state": "unknown", "instance_id": "i-2"}]


async def places(world: BalancerWorld, made: dict[str, Any]) -> list[str | None]:
    plan = world.proxies.running[made["id"], 2].plan
    return [each.socket or each.address for each in plan.backends[0].targets]


async def test_a_deleted_pool_gives_no_targets_and_a_fault(world: BalancerWorld) -> None:
    world.pools.instances = [Instance("i-1", "10.0.1.21")]
    made = await world.active(backends=[OF_POOL])
    world.pools.is_deleted = True
    await world.database.write(pool_changed, ACCOUNT, POOL, world.clock())
    await world.work()
    found = await world.show(made)
    assert (found["status"], await places(world, made)) == ("degraded", [])
    assert [each["code"] for each in found["faults"]] == ["POOL_DELETED"]
    await world.change(made, backends=[WEB])
    await world.work()
    found = await world.show(made)
    assert (found["status"], found["faults"]) == ("active", [])


async def test_an_instance_of_another_network_is_left_out(world: BalancerWorld) -> None:
    world.pools.instances = [Instance("i-1", "10.9.0.1"), Instance("i-2", "10.0.1.22")]
    made = await world.make(backends=[OF_POOL])
    await world.work()
    found = await world.show(made)
    assert await places(world, made) == ["10.0.1.22"]
    assert [each["code"] for each in found["faults"]] == ["TARGET_OUTSIDE"]
    assert found["status"] == "degraded"


async def move_subnet(world: BalancerWorld, cidr: str) -> None:
    """Do what no request can; but a subnet that is made anew may have another range."""
    moved = network.SUBNETS.table.update().values(cidr_ipv4=text(f"'{cidr}'"))
    await world.database.write(lambda tx: tx.execute(Statement(moved)))


async def test_an_address_is_checked_again_at_each_rendering(world: BalancerWorld) -> None:
    made = await world.active(backends=[WEB, DB], listeners=[HTTP, TCP])

    await move_subnet(world, "10.0.1.8/29")
    await world.change(made, replica_count=1)
    await world.work()
    found = await world.show(made)
    assert [(each["code"], each["severity"]) for each in found["faults"]] == [
        ("TARGET_OUTSIDE", "error")
    ]
    plan = world.proxies.running[made["id"], 1].plan
    assert [[each.address for each in one.targets] for one in plan.backends] == [["10.0.1.9"], []]
    assert found["status"] == "degraded"


async def test_an_address_whose_subnet_goes_is_left_out_until_it_is_back(
    world: BalancerWorld,
) -> None:
    made = await world.active(backends=[WEB, DB], listeners=[HTTP, TCP])
    await world.look()
    calls = list(world.proxies.calls)
    await world.look()
    assert world.proxies.calls == calls, "nothing has changed"
    for network_of_subnet, code, status in (
        ("10.0.2.0/24", ["TARGET_OUTSIDE"] * 2, "degraded"),
        ("10.0.1.0/24", [], "active"),
    ):
        await move_subnet(world, network_of_subnet)
        await world.look()
        found = await world.show(made)
        assert ([one["code"] for one in found["faults"]], found["status"]) == (code, status)
        calls = list(world.proxies.calls)
        await world.look()
        assert world.proxies.calls == calls, "once"


@pytest.mark.timeout(60)
async def test_what_is_left_of_several_load_balancers_is_ended_together(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take all of its half a minute."""
    for name in ("one", "two"):
        made = await world.active(name=name)
        world.proxies.running[uuid7(), 1] = world.proxies.running[made["id"], 1]
    all_of_them, stop = asyncio.Barrier(2 * MOST_REPLICAS), world.proxies.stop

    async def wait_and_stop(balancer_id: str, replica: int) -> None:
        await all_of_them.wait()
        await stop(balancer_id, replica)

    before = len(world.proxies.running)
    monkeypatch.setattr(world.proxies, "stop", wait_and_stop)
    await world.watch.turn()
    assert len(world.proxies.running) == before - 2


async def test_without_namespaces_only_what_the_operator_allows_is_dialled(
    world: BalancerWorld,
) -> None:
    world.network.namespace = None
    made = await world.make()
    await world.work()
    found = await world.show(made)
    assert [each["code"] for each in found["faults"]] == ["TARGET_OUTSIDE"]
    assert world.proxies.running[made["id"], 1].plan.backends[0].targets == ()
    assert world.proxies.running[made["id"], 1].netns is None


@dataclass
class Noting:
    """A database that counts its changes."""

    database: Database
    writes: int = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as it is
        self.writes += name.startswith("write")
        return getattr(self.database, name)


async def test_health_of_targets_is_stored_when_it_changes(world: BalancerWorld) -> None:
    made = await world.active()
    await world.look()
    seen = await world.show(made)
    (health,) = seen["backends"][0]["health"]
    assert health == {"port": 8080, "state": "healthy", "address": "10.0.1.9"}
    noting = Noting(world.database)
    object.__setattr__(world.needs, "database", noting)
    await world.watch.turn()
    assert noting.writes == 0  # nothing has changed
    world.proxies.states["10.0.1.9 8080"] = "unhealthy"
    await world.look()
    seen = await world.show(made)
    assert seen["backends"][0]["health"][0]["state"] == "unhealthy"
    assert (seen["status"], seen["updated_at"]) == ("active", made["updated_at"])


async def test_a_dead_replica_is_started_again(world: BalancerWorld) -> None:
    made = await world.active()
    world.proxies.dead.add((made["id"], 2))
    world.proxies.failure = ProxyFailed("no port")
    await world.look()
    found = await world.show(made)
    assert found["status"] == "degraded"
    assert found["replicas"][1] == {"number": 2, "is_alive": False}
    codes = {each["code"]: each["severity"] for each in found["faults"]}
    assert codes == {"REPLICA_DIED": "warning", "REPLICA_FAILED": "error"}
    world.proxies.failure = None
    await world.work(after=10)
    found = await world.show(made)
    assert (found["status"], found["faults"]) == ("active", [])
    assert world.proxies.dead == set()


async def test_one_whose_proxies_cannot_be_started_fails_and_recovers(
    world: BalancerWorld,
) -> None:
    world.proxies.failure = ProxyFailed("secret of the machine")
    made = await world.make()
    await world.work()
    assert (await world.show(made))["status"] == "provisioning"
    for _ in range(3):
        await world.work(after=60)
    found = await world.show(made)
    assert found["status"] == "failed"
    (fault,) = found["faults"]
    assert (fault["code"], "secret" in fault["message"]) == ("REPLICA_FAILED", False)
    assert fault["occurrences"] >= 3
    world.proxies.failure = None
    await world.work(after=60)
    found = await world.show(made)
    assert (found["status"], found["faults"]) == ("active", [])


async def test_what_ran_before_goes_on_if_a_change_fails(world: BalancerWorld) -> None:
    made = await world.active()
    world.proxies.failure = ProxyFailed("no")
    await world.change(made, listeners=[HTTP, TCP], backends=[WEB, DB])
    for _ in range(4):
        await world.work(after=60)
    found = await world.show(made)
    assert found["status"] == "updating"
    assert [each["code"] for each in found["faults"]] == ["REPLICA_FAILED"]
    assert [each.port for each in world.proxies.running[made["id"], 1].plan.listeners] == [80]
    await world.change(made, listeners=[HTTP], backends=[WEB])
    world.proxies.failure = None
    await world.work(after=60)
    assert (await world.show(made))["status"] == "active"


async def test_proxies_of_no_load_balancer_are_ended(world: BalancerWorld) -> None:
    made = await world.active()
    running = world.proxies.running
    running["018f0000-0000-7000-8000-000000000000", 3] = running[made["id"], 1]
    await world.look()
    assert sorted(running) == [(made["id"], 1), (made["id"], 2)]


async def test_a_failing_step_of_the_teardown_is_tried_again(world: BalancerWorld) -> None:
    """L2: a failing step retries with a fault, and the record stays."""
    made = await world.active(listeners=[HTTPS])
    world.network.failure = OSError("netlink")
    await world.ask("DELETE", f"/{made['id']}")
    await world.work()
    found = await world.show(made)
    assert (found["status"], len(world.proxies.running)) == ("deleting", 2)
    assert [each["code"] for each in found["faults"]] == ["INTERNAL_ERROR"]
    world.network.failure, world.proxies.failure = None, ProxyFailed("it hangs")
    await world.work(after=60)
    found = await world.show(made)
    assert (found["status"], len(world.roles.roles)) == ("deleting", 1)
    assert world.network.vips == {}
    world.proxies.failure = None
    await world.work(after=60)
    assert (await world.ask("GET", f"/{made['id']}")).status_code == 404
    await assert_nothing_left(world)


async def test_metrics_are_sums_over_restarts(world: BalancerWorld) -> None:
    made = await world.active()
    zero = (await world.ask("GET", f"/{made['id']}/metrics")).json()["metrics"]
    assert zero["requests"] == 0
    assert zero["responses"] == {"1xx": 0, "2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0}
    first = ReplicaMetrics(100, 1000, 3, 5, {"2xx": 4, "5xx": 1})
    world.proxies.metrics = {1: first, 2: ReplicaMetrics(1, 1, 1, 1, {"2xx": 1})}
    await world.look(after=11)
    await world.look(after=11)  # the same is not added again
    world.proxies.metrics[1] = ReplicaMetrics(150, 1500, 4, 6, {"2xx": 5, "5xx": 1})
    await world.look(after=11)
    world.proxies.metrics[1] = ReplicaMetrics(10, 20, 1, 1, {"2xx": 1})  # it was started anew
    await world.look(after=11)
    found = (await world.ask("GET", f"/{made['id']}/metrics")).json()["metrics"]
    assert found == {
        "bytes_in": 161,
        "bytes_out": 1521,
        "connections": 6,
        "requests": 8,
        "responses": {"1xx": 0, "2xx": 7, "3xx": 0, "4xx": 0, "5xx": 1},
    }
    await world.ask("DELETE", f"/{made['id']}")
    await world.work()
    await assert_nothing_left(world)


async def test_each_hour_of_each_is_counted(world: BalancerWorld) -> None:
    measure = LOADBALANCER.runtime.samples["loadbalancer.hours"]
    assert await measure(world.database) == {}
    for name in ("one", "two"):
        await world.make(name=name)
    await world.ask("POST", "", wanted(), token="stranger")
    assert await measure(world.database) == {ACCOUNT: 2, OTHER_ACCOUNT: 1}


async def test_one_of_a_lost_machine_is_degraded_until_it_is_back(world: BalancerWorld) -> None:
    made = await world.active()
    (placing,) = LOADBALANCER.runtime.placings
    place = [(ACCOUNT, made["id"])]

    def note(tx: Connection, is_lost: bool) -> None:
        _note_batch(placing, place, world.clock(), tx, is_lost=is_lost)

    await world.database.write(note, True)
    await world.change(made, replica_count=1)
    await world.work()
    found = await world.show(made)
    assert (found["status"], found["faults"][0]["code"]) == ("degraded", "NODE_LOST")
    await world.database.write(note, False)
    await world.look()
    found = await world.show(made)
    assert (found["status"], found["faults"]) == ("active", [])


@pytest.mark.parametrize("count", [51])
async def test_an_account_has_at_most_so_many(world: BalancerWorld, count: int) -> None:
    object.__setattr__(
        world.needs.parts, "vips", (__import__("ipaddress").ip_network("10.1.0.0/24"),)
    )
    for number in range(count - 1):
        await world.make(name=f"lb-{number}")
    answer = await world.ask("POST", "", wanted())
    assert (answer.status_code, answer.json()["error"]["params"]["quota"]) == (
        403,
        "load_balancers",
    )
