"""A served install whose disk has no byte left: it starts, replaces dead workers, and is pulled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from cloudcore.jobs.dead_holders import WorkerLocks
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from tests.fault.collected import CONFIG, DELETED, KEPT, document
from tests.fault.small_disk import free_bytes, small_disk, take_the_rest
from tests.fault.workers import kill, workers_of
from tests.live import LiveRegistry, start_registry
from tests.live_signed_in import SignedIn, Tenant, serving
from tests.waiting import until

DISK_BYTES: Final = 64 << 20
LEFT_BYTES: Final = 64 << 10
"""What a server that has died gives back, and the next has not taken yet."""
WORKERS: Final = ("--workers", "2")

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return an empty small disk."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def client_of(url: str, tenant: Tenant) -> httpx.Client:
    """Log a container client in, as its stored password does."""
    scope = {"service": "entrepot", "scope": "repository:acme/app:pull,push"}
    answer = httpx.get(f"{url}/v2/token", params=scope, auth=("token", tenant.password), timeout=30)
    answer.raise_for_status()
    bearer = {"Authorization": f"Bearer {answer.json()['token']}"}
    return httpx.Client(base_url=url, headers=bearer, timeout=30)


def push_image(url: str, tenant: Tenant, layer: bytes) -> None:
    """Push an image of one layer."""
    with client_of(url, tenant) as client:
        for blob in (CONFIG, layer):
            where = f"/v2/acme/app/blobs/uploads/?digest={digest_of(blob)}"
            assert client.post(where, content=blob).status_code == 201
        body = document(layer)
        where, kind = f"/v2/acme/app/manifests/{digest_of(body)}", {"Content-Type": OCI_MANIFEST}
        assert client.put(where, content=body, headers=kind).status_code == 201


def check_pulled(url: str, tenant: Tenant) -> None:
    """Log in and pull the image."""
    with client_of(url, tenant) as client:
        assert client.get(f"/v2/acme/app/manifests/{digest_of(document(KEPT))}").is_success
        assert client.get(f"/v2/acme/app/blobs/{digest_of(KEPT)}").content == KEPT


@contextmanager
def started(signed_in: SignedIn, env: Mapping[str, str]) -> Iterator[LiveRegistry]:
    """Serve the install again, with two workers, until it is killed or the block ends."""
    options = ("--port", str(signed_in.registry.port), *WORKERS)
    again = start_registry(signed_in.registry.data, *options, command="serve", env=env)
    try:
        yield again
    finally:
        killed = again.process.returncode
        assert again.stop() == (killed or 0), again.log


def replace_workers(registry: LiveRegistry) -> None:
    """Kill one worker; once another has taken its place, kill the worker that was left."""
    first, second = workers_of(registry.process.pid)
    kill([first])

    def is_replaced() -> bool:
        return len(workers_of(registry.process.pid)) > 1

    until(is_replaced, "no worker in its place")
    kill([second])


def kill_all(registry: LiveRegistry) -> None:
    """Kill the whole server."""
    kill([registry.process.pid, *workers_of(registry.process.pid)])
    registry.process.wait()


def check_served(disk: Path, signed_in: SignedIn, env: Mapping[str, str], *, dies: bool) -> None:
    """Pull from the install on a full disk; if it `dies`, also before and after that.

    First its workers die one by one, then all its processes at once.
    """
    taken = take_the_rest(disk)
    if dies:
        with started(signed_in, env) as registry:
            check_pulled(registry.url, signed_in.acme)
            replace_workers(registry)
            check_pulled(registry.url, signed_in.acme)
            kill_all(registry)
    with started(signed_in, env) as registry:
        check_pulled(registry.url, signed_in.acme)
        assert free_bytes(disk) < LEFT_BYTES
        taken.unlink()
        push_image(registry.url, signed_in.acme, DELETED)


def test_an_install_on_sqlite(disk: Path) -> None:
    """The log and its index take room that the last process kept."""
    with serving(disk / "data", *WORKERS) as signed_in:
        signed_in.call(signed_in.acme, "POST", "/v1/repositories", {"name": "app"})
        push_image(signed_in.registry.url, signed_in.acme, KEPT)
    check_served(disk, signed_in, {}, dies=True)


@pytest.mark.postgresql
def test_an_install_on_postgresql(disk: Path, postgresql_database: str) -> None:
    """What dies and starts again is as on SQLite, but for the database, which is elsewhere."""
    env = {"ENTREPOT_DATABASE_URL": postgresql_database}
    with serving(disk / "data", *WORKERS, database=postgresql_database) as signed_in:
        signed_in.call(signed_in.acme, "POST", "/v1/repositories", {"name": "app"})
        push_image(signed_in.registry.url, signed_in.acme, KEPT)
    check_served(disk, signed_in, env, dies=False)


def test_a_worker_whose_lock_has_no_room_is_unknown(tmp_path: Path) -> None:
    """On a disk that takes no further file, not even an empty one."""
    with small_disk(tmp_path / "disk", DISK_BYTES, files=4) as disk:
        locks = WorkerLocks(disk / "workers")
        with locks.locked("one"):
            assert not locks.is_dead("one")
            with locks.locked("two"), pytest.raises(OSError, match="No space left"):
                (disk / "file").touch()
            assert not locks.is_dead("two")
        assert locks.dead() == []
