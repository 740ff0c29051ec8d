"""Clusters that run elsewhere: a real server with TLS is looked at, over checked addresses."""

from __future__ import annotations

import base64
import re
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.certificate import authority
from cloudcore.databases.archive.driver import RegisteredEndpoint
from cloudcore.databases.backups import schedules
from cloudcore.databases.clusters import endpoints, workflow
from cloudcore.databases.clusters.bodies import GivenEndpoint, read_endpoint
from cloudcore.databases.clusters.cluster import Cluster, Endpoint, Schedule
from cloudcore.databases.clusters.endpoints import (
    EndpointUnreachable,
    addresses_of,
    server_version,
)
from cloudcore.databases.clusters.states import open_password
from cloudcore.databases.needs import DatabaseTerms
from cloudcore.errors import Conflict, InvalidInput
from cloudcore.outbound.destinations import Address
from tests.cluster_world import World, open_world
from tests.elsewhere import LOOPBACK, PASSWORD, Elsewhere, elsewhere
from tests.integration.oauth_world import World as Identity


@pytest.fixture(scope="module")
def server() -> Iterator[Elsewhere]:
    with elsewhere() as made:
        yield made


@pytest.fixture
async def world(oauth: Identity) -> World:
    made = await open_world(oauth)
    made.terms = DatabaseTerms(networks=LOOPBACK)
    made.restart()
    return made


async def register(
    world: World, endpoint: Endpoint, name: str = "legacy", password: str = PASSWORD
) -> Cluster:
    now = world.identity.now
    new = world.new(name, password, type="registered", endpoint=endpoint, check_at=now)
    return await world.add(new)


async def test_it_is_active_if_it_lets_us_in_by_tls(world: World, server: Elsewhere) -> None:
    made = await register(world, server.endpoint(ca=server.roots))
    assert made.status == "provisioning"
    await world.look()
    found = await world.get(made)
    assert (found.status, found.faults, found.version) == ("active", (), _version(server))
    assert found.checked_at == world.identity.now
    assert open_password(world.identity.keyring, found) == PASSWORD, "backups need it still"


async def test_it_is_looked_at_again_and_again(world: World, server: Elsewhere) -> None:
    made = await register(world, server.endpoint())
    await world.look()
    server.stop()
    try:
        await world.look(120)
        await schedules.wake_due_checks(world.needs)
        await world.look(0)
        assert (await world.get(made)).status == "active", "not before it is time"
        await _look_in_time(world)
        found = await world.get(made)
        assert (found.status, await world.codes(made)) == ("unavailable", {"ENDPOINT_UNREACHABLE"})
        assert "Connection refused" in found.faults[0].message
    finally:
        server.start()
    await _look_in_time(world)
    found = await world.get(made)
    assert (found.status, found.faults) == ("active", ())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"password": "wrong"}, "password authentication failed"),
        ({"host": "localhost"}, "does not match host name|certificate for .* does not match"),
        ({"is_of_another": True}, "certificate verify failed"),
        ({"networks": ()}, "ENTREPOT_DATABASE_NETWORKS"),
    ],
)
async def test_what_is_wrong_is_said_and_tells_no_secret(
    world: World, server: Elsewhere, changed: dict[str, object], words: str
) -> None:
    roots = server.roots
    if changed.get("is_of_another"):
        roots = authority.pem(authority.new_root("other", time.time_ns() // 1000).certificate)
    if "networks" in changed:
        world.terms = DatabaseTerms()
        world.restart()
    host = str(changed.get("host", "127.0.0.1"))
    password = str(changed.get("password", PASSWORD))
    made = await register(world, server.endpoint(host, roots), password=password)
    await world.look()
    found = await world.get(made)
    assert (found.status, found.version) == ("unavailable", None)
    (fault,) = found.faults
    assert fault.code == "ENDPOINT_UNREACHABLE"
    assert re.search(words, fault.message), fault.message
    assert PASSWORD not in fault.message


async def test_a_version_that_is_not_looked_after_is_said(
    world: World, server: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "VERSIONS", (98, 99))
    made = await register(world, server.endpoint())
    await world.look()
    found = await world.get(made)
    assert (found.status, found.version) == ("unavailable", _version(server))
    (fault,) = found.faults
    assert fault.code == "VERSION_UNSUPPORTED"
    assert fault.message == f"it is PostgreSQL {_version(server)}; 98 to 99 are looked after"


async def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "_WHOLE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = RegisteredEndpoint("127.0.0.1", silent.getsockname()[1], "ada", PASSWORD, None)
        with pytest.raises(EndpointUnreachable, match="it did not answer in time"):
            await server_version(endpoint, "postgres", LOOPBACK)


async def test_what_runs_elsewhere_is_not_started_resized_or_backed_up_in_steps(
    world: World,
) -> None:
    place = Endpoint("127.0.0.1", 5432, "postgres", "ada")
    made = await register(world, place)
    for change in (world.want(made, is_wanted=False), world.reset(made, "x")):
        with pytest.raises(Conflict) as refused:
            await change
        assert refused.value.params["reason"] == "is_registered"
    assert await world.get(made) == made
    of = {"type": "registered", "endpoint": place, "bucket": await world.add_bucket()}
    with pytest.raises(InvalidInput, match="there are base backups alone"):
        await world.create("other", schedule=Schedule(incremental_cron="0 3 * * *"), **of)


async def test_a_server_of_which_nothing_is_known_gets_no_password(
    world: World, server: Elsewhere
) -> None:
    """It would be told to whoever stands in between, who asks for it as it is."""
    server.stop()
    server.start("password")
    try:
        known = await register(world, server.endpoint(ca=server.roots), "known")
        unknown = await register(world, server.endpoint(), "unknown")
        await world.look()
        assert (await world.get(known)).status == "active"
        found = await world.get(unknown)
        assert "authentication method" in found.faults[0].message
    finally:
        server.stop()
        server.start()


async def test_every_address_of_a_name_is_checked_when_it_is_dialled() -> None:
    async def look_up(_host: str, _port: int) -> list[Address]:
        return [ip_address("93.184.216.34"), ip_address("10.0.0.1")]

    with pytest.raises(EndpointUnreachable, match="not public"):
        await addresses_of("db.example.com", 5432, (), look_up)
    allowed = (ip_network("10.0.0.0/8"),)
    assert len(await addresses_of("db.example.com", 5432, allowed, look_up)) == 2


async def test_a_name_that_nobody_can_look_up_has_no_address() -> None:
    with pytest.raises(EndpointUnreachable, match="has no address"):
        await addresses_of(f"{'a' * 64}.example.com", 5432, ())


def _of_version_7() -> str:
    """Return a certificate of a version that there is not."""
    made = authority.new_root("other", time.time_ns() // 1000).certificate
    der = made.public_bytes(Encoding.DER)
    before, version, after = der.partition(bytes.fromhex("a003020102"))
    told = base64.encodebytes(before + version[:-1] + b"\x06" + after).decode()
    return f"-----BEGIN CERTIFICATE-----\n{told}-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"host": "127.0.0.1"}, "endpoint.host"),
        ({"host": "::ffff:10.0.0.1"}, "endpoint.host"),
        ({"host": "/run/postgresql"}, "endpoint.host"),
        ({"host": "a.example,b.example"}, "endpoint.host"),
        ({"host": "@abstract"}, "endpoint.host"),
        ({"username": "a\0b"}, "endpoint.username"),
        ({"ca": "no certificate"}, "endpoint.ca"),
        ({"ca": "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"}, "endpoint.ca"),
        ({"ca": _of_version_7()}, "endpoint.ca"),
    ],
)
def test_what_cannot_be_an_endpoint_is_refused(given: dict[str, str], field: str) -> None:
    whole: dict[str, Any] = {"host": "db.example.com", "username": "u", "password": "p"} | given
    with pytest.raises(InvalidInput) as refused:
        read_endpoint(GivenEndpoint(**whole), ())
    assert refused.value.params["field"] == field


async def _look_in_time(world: World) -> None:
    """Let five minutes pass, and the chore and the work do what there is."""
    await world.look(300)
    await schedules.wake_due_checks(world.needs)
    await world.look(0)


def _version(server: Elsewhere) -> int:
    return int((server.folder / "cluster/PG_VERSION").read_text())
