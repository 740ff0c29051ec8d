"""The credentials of a registered cluster are changed once its server has let them in."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from msgspec import structs
from sqlalchemy import select

from cloudcore.audit.rows import audit_events
from cloudcore.certificate import authority
from cloudcore.databases.clusters import clusters
from cloudcore.databases.clusters.cluster import Cluster
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.databases.clusters.states import open_password, seal_password
from cloudcore.db.base import Database
from cloudcore.db.statement import Statement, page
from cloudcore.errors import Conflict
from tests.backup_world import BackupWorld, open_backups
from tests.databases import on_both_databases
from tests.elsewhere import LOOPBACK, PASSWORD, Elsewhere, elsewhere

NEW = "another one that it takes"
_e = audit_events.c
_EVENTS = Statement(page(select(_e.action, _e.resource, _e.outcome, _e.details)))


@pytest.fixture(scope="module")
def server() -> Iterator[Elsewhere]:
    with elsewhere() as made:
        yield made


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[BackupWorld]:
    async with open_backups(database, tmp_path, networks=LOOPBACK) as opened:
        yield opened


@pytest.fixture
async def cluster(world: BackupWorld, server: Elsewhere) -> Cluster:
    made = await world.add_cluster("legacy", type="registered")
    changed = structs.replace(
        made,
        endpoint=server.endpoint(ca=server.roots),
        secret=seal_password(world.needs.keyring, made.id, PASSWORD),
    )
    return await world.database.write(CLUSTERS.save, changed)


async def _change(
    world: BackupWorld, cluster: Cluster, body: object, token: str = "writer"
) -> httpx.Response:
    path = f"/{cluster.id}/change-credentials"
    return await world.ask("POST", path, body, token=token)


@on_both_databases
async def test_what_the_server_takes_is_stored_and_it_is_looked_at_anew(
    world: BackupWorld, cluster: Cluster, server: Elsewhere
) -> None:
    server.set_password(NEW)
    try:
        await world.database.write(CLUSTERS.save, structs.replace(cluster, status="unavailable"))
        refused = await _change(world, cluster, {"password": "a wrong one"})
        assert (refused.status_code, refused.json()["error"]["params"]["reason"]) == (
            409,
            "endpoint_unreachable",
        )
        assert "password authentication failed" in refused.json()["error"]["message"]
        assert open_password(world.needs.keyring, await world.cluster(cluster)) == PASSWORD

        answer = await _change(world, cluster, {"password": NEW})
        assert answer.status_code == 200, answer.text
        assert NEW not in answer.text
        assert answer.json()["cluster"]["endpoint"]["ca"] == server.roots, "it stays"
        found = await world.cluster(cluster)
        assert open_password(world.needs.keyring, found) == NEW
        assert NEW.encode() not in (found.secret or b"")
        [event] = await world.database.read(lambda tx: list(tx.rows(_EVENTS, limit=9)))
        assert tuple(event)[:3] == ("database:ChangeClusterCredentials", found.crn, "succeeded")
        assert not any(NEW in str(each) for each in event), "of the refused one there is none"
        await world.work()
        found = await world.cluster(cluster)
        assert (found.status, found.faults, found.applied) == ("active", (), found.generation)

        answer = await _change(world, cluster, {"password": NEW, "ca": None})
        assert answer.status_code == 200, answer.text
        assert "ca" not in answer.json()["cluster"]["endpoint"]
    finally:
        server.set_password(PASSWORD)


async def test_what_it_does_not_take_changes_nothing(world: BackupWorld, cluster: Cluster) -> None:
    other = authority.new_root("another", time.time_ns() // 1000).certificate
    given = {"password": PASSWORD}
    cases: list[tuple[dict[str, str], int, str | None]] = [
        ({}, 400, "password"),
        ({"password": ""}, 400, "password"),
        ({"password": "a\nb"}, 400, "password"),
        ({**given, "username": ""}, 400, "username"),
        ({**given, "ca": "no certificate"}, 400, "ca"),
        ({**given, "host": "db.example.com"}, 400, "host"),
        ({**given, "username": "nobody"}, 409, None),
        ({**given, "ca": authority.pem(other)}, 409, None),
    ]
    for body, status, field in cases:
        answer = await _change(world, cluster, body)
        error = answer.json()["error"]
        assert (answer.status_code, error["params"].get("field")) == (status, field), answer.text
        assert PASSWORD not in answer.text
        assert await world.cluster(cluster) == cluster


async def test_one_that_is_run_here_or_is_another_accounts_or_goes_is_refused(
    world: BackupWorld, cluster: Cluster
) -> None:
    managed, given = await world.add_cluster(), {"password": PASSWORD}
    answer = await _change(world, managed, given)
    assert (answer.status_code, answer.json()["error"]["params"]["reason"]) == (409, "is_managed")
    assert (await _change(world, cluster, given, "stranger")).status_code == 404
    going = structs.replace(cluster, status="deleting")
    await world.database.write(CLUSTERS.save, going)
    answer = await _change(world, cluster, given)
    assert answer.json()["error"]["params"]["reason"] == "being_deleted"


@on_both_databases
async def test_of_two_changes_at_once_the_second_is_refused(
    world: BackupWorld, cluster: Cluster
) -> None:
    """What it was tried with is no more what is there."""
    assert cluster.endpoint is not None
    first = structs.replace(cluster.endpoint, username="first")
    change, write = clusters.change_credentials, world.database.write
    await write(change, cluster, first, b"sealed", world.clock())
    with pytest.raises(Conflict, match="just changed"):
        await write(change, cluster, cluster.endpoint, b"other", world.clock())
    assert (await world.cluster(cluster)).endpoint == first
