"""Load balancers: what follows from their rows, and what their proxies do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from cloudcore.certificate.rows import ROWS as CERTIFICATES
from cloudcore.certificate.services import CERTIFICATES as OF_CERTIFICATES
from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.driver import ProxyFailed, ReplicaMetrics
from cloudcore.loadbalancer.family import LOADBALANCER
from cloudcore.loadbalancer.load_balancer import MOST_REPLICAS
from cloudcore.network import rows as network
from cloudcore.nodes.rows import _note_batch
from tests.balancers import (
    DB,
    HTTP,
    HTTPS,
    NAMESPACE,
    TCP,
    WEB,
    BalancerWorld,
    assert_nothing_left,
    open_balancers,
    wanted,
)
from tests.control_plane import ACCOUNT, OTHER_ACCOUNT
from tests.databases import on_both_databases
from tests.tenants import allow, document


@pytest.fixture
async def world(database: Database) -> AsyncIterator[BalancerWorld]:
    """Return an account with a network, before its first load balancer."""
    async with open_balancers(database) as world:
        yield world


@on_both_databases
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
    assert await world.worked(made) == ("active", [])
    found = await world.show(made)
    assert found["replicas"] == [{"number": 1, "is_alive": True}, {"number": 2, "is_alive": True}]
    assert world.network.vips == {"192.0.2.1": made["vpc"]["id"]}
    running = world.proxies.running
    assert sorted(running) == [(made["id"], 1), (made["id"], 2)]
    plan = running[made["id"], 1].plan
    assert running[made["id"], 1].netns == NAMESPACE
    assert (plan.vip, plan.listeners[0].port) == ("192.0.2.1", 80)
    assert [each.address for each in plan.backends[0].targets] == ["10.0.1.9"]


async def test_it_is_deleted_in_every_state(world: BalancerWorld) -> None:
    """L1: DELETE is taken in every state, and nothing is left."""
    for state in ("provisioning", "active", "updating", "degraded", "failed"):
        made = await world.make()
        if state != "provisioning":
            await world.work()

        def set_state(tx: Connection, made_id: str = made["id"], state: str = state) -> None:
            current = rows.ROWS.lock(tx, ACCOUNT, made_id)
            rows.ROWS.save(tx, structs.replace(current, status=state))

        await world.database.write(set_state)
        assert (await world.ask("DELETE", f"/{made['id']}")).status_code == 202, state
        await world.work()
        assert (await world.ask("GET", f"/{made['id']}")).status_code == 404, state
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
    # One that was never served is free at once.
    for certificate in ("site", "other"):
        await world.change(made, listeners=[{**HTTPS, "certificate": certificate}])
    assert await deletion(world, "site") == []
    await world.work()
    assert await deletion(world, "other") == [made["crn"]]


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
    assert (await world.state(made))[0] == "active"
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
    assert await world.worked(made) == ("provisioning", ["CERTIFICATE_NOT_ISSUED"])
    done = structs.replace(waiting, **{each: getattr(issued, each) for each in none})
    done = structs.replace(done, status="active", fingerprint=issued.fingerprint)
    await world.database.write(CERTIFICATES.save, done)
    assert await world.worked(made, after=60) == ("active", [])


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
    assert await world.worked(made, after=60) == ("active", [])


async def test_a_change_reaches_the_proxies(world: BalancerWorld) -> None:
    made = await world.active()
    changed = await world.change(made, listeners=[HTTP, TCP], backends=[WEB, DB])
    assert changed["status"] == "updating"
    await world.work()
    assert (await world.show(made))["status"] == "active"
    plan = world.proxies.running[made["id"], 2].plan
    assert [each.port for each in plan.listeners] == [80, 5432]
    await world.change(made, replica_count=1)
    await world.work()
    assert sorted(world.proxies.running) == [(made["id"], 1)]
    assert (await world.show(made))["replicas"] == [{"number": 1, "is_alive": True}]


async def test_security_groups_are_those_of_its_interface(world: BalancerWorld) -> None:
    made = await world.active(security_groups=["open", "default"])
    assert [each["name"] for each in made["security_groups"]] == ["open", "default"]
    assert await groups(world, made) == ["open", "default"]
    await world.change(made, security_groups=["open"])
    assert await groups(world, made) == ["open"]


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
    certificate = made["listeners"][0]["certificate"]["crn"]
    assert policy == document(
        allow("loadbalancer:PutLoadBalancerMetrics", on=made["crn"]),
        allow("certificate:GetCertificate", on=certificate),
    )
    await world.change(made, listeners=[HTTP])
    await world.work()
    (policy,) = world.roles.roles.values()
    assert len(policy["statements"]) == 1  # type: ignore[arg-type]


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

    ours = {each for each, one in world.proxies.running.items() if each[0] == one.plan.balancer_id}
    monkeypatch.setattr(world.proxies, "stop", wait_and_stop)
    await world.watch.turn()
    assert world.proxies.running.keys() == ours


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
    assert await world.worked(made, after=10) == ("active", [])
    assert world.proxies.dead == set()


async def test_one_whose_proxies_cannot_be_started_fails_and_recovers(
    world: BalancerWorld,
) -> None:
    world.proxies.failure = ProxyFailed("secret of the machine")
    made = await world.make()
    assert (await world.worked(made))[0] == "provisioning"
    for _ in range(3):
        await world.work(after=60)
    found = await world.show(made)
    assert found["status"] == "failed"
    (fault,) = found["faults"]
    assert (fault["code"], "secret" in fault["message"]) == ("REPLICA_FAILED", False)
    assert fault["occurrences"] >= 3
    world.proxies.failure = None
    assert await world.worked(made, after=60) == ("active", [])


async def test_what_ran_before_goes_on_if_a_change_fails(world: BalancerWorld) -> None:
    made = await world.active()
    world.proxies.failure = ProxyFailed("no")
    await world.change(made, listeners=[HTTP, TCP], backends=[WEB, DB])
    for _ in range(4):
        assert await world.worked(made, after=60) == ("updating", ["REPLICA_FAILED"])
    assert [each.port for each in world.proxies.running[made["id"], 1].plan.listeners] == [80]
    await world.change(made, listeners=[HTTP], backends=[WEB])
    world.proxies.failure = None
    assert (await world.worked(made, after=60))[0] == "active"


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


@on_both_databases
async def test_each_hour_of_each_is_counted(world: BalancerWorld) -> None:
    measure = LOADBALANCER.runtime.samples["loadbalancer.hours"]
    assert await measure(world.database) == {}
    for name in ("one", "two"):
        await world.make(name=name)
    await world.ask("POST", "", wanted(), token="stranger")
    assert await measure(world.database) == {ACCOUNT: 2, OTHER_ACCOUNT: 1}


@on_both_databases
async def test_one_of_a_lost_machine_is_degraded_until_it_is_back(world: BalancerWorld) -> None:
    made = await world.active()
    (placing,) = LOADBALANCER.runtime.placings

    def note(tx: Connection, is_lost: bool) -> None:
        here = rows.ON_NODE.all(tx, world.needs.node.name)
        _note_batch(placing, here, world.clock(), tx, is_lost=is_lost)

    await world.database.write(note, True)
    await world.change(made, replica_count=1)
    await world.work()
    found = await world.show(made)
    assert (found["status"], found["faults"][0]["code"]) == ("degraded", "NODE_LOST")
    await world.database.write(note, False)
    await world.look()
    assert await world.state(made) == ("active", [])
