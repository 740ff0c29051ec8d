"""Jobs run beside the planes of a registry, outlive its death, and begin when a change put them in.

The registries are processes of their own on one SQLite file, as worker processes are.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import pytest

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.identity.bootstrap import FirstCredentials, create_first_account
from cloudcore.jobs import schedule_rows
from cloudcore.keyring import create_root_key, load_keyring
from registry.composition.main import prepare
from registry.oci.media_types import OCI_INDEX
from registry.settings.settings import Settings
from tests.databases import with_database
from tests.jobs import (
    enqueue_counts,
    get,
    list_effects,
    make_tables,
    unfinished,
    until,
)
from tests.loaded import start_worker
from tests.schedules import all_turns

T = TypeVar("T")

STEPS: Final = 3
PATIENCE_SECONDS: Final = 60


class CountingRegistry:
    """A process of `tests.fault.job_registry`."""

    def __init__(self, data: Path, command: str, mode: str, poll_seconds: float) -> None:
        words = (command, str(data), mode, str(poll_seconds))
        self._worker = start_worker("tests.fault.job_registry", *words)
        self.read = self._worker.read
        self.url = self.read().partition("ready ")[2]

    def kill(self) -> None:
        """End it without a chance to do anything."""
        self._worker.kill()

    def stop(self) -> tuple[int, list[str]]:
        """Ask it to end; return its exit status and the lines not yet read."""
        self._worker.process.send_signal(signal.SIGTERM)
        told = self._worker.stdout.read().splitlines()
        return self._worker.process.wait(PATIENCE_SECONDS), told


@contextmanager
def running(
    data: Path, command: str = "dev", mode: str = "working", poll_seconds: float = 0.05
) -> Iterator[CountingRegistry]:
    registry = CountingRegistry(data, command, mode, poll_seconds)
    try:
        yield registry
    finally:
        registry.kill()


def with_jobs(data: Path, scenario: Callable[[Database], Awaitable[T]]) -> T:
    return with_database(
        Settings(data).database,
        lambda database: asyncio.wait_for(scenario(database), PATIENCE_SECONDS),
    )


async def put_in(database: Database) -> str:
    (job,) = await database.write(enqueue_counts, 1, STEPS, system_clock())
    return job


async def drain(database: Database) -> None:
    async def is_drained() -> bool:
        return not await database.read(unfinished)

    await until(is_drained)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with a root key, and the table the jobs write to."""
    settings = Settings(tmp_path / "data")
    prepare(settings)
    create_root_key(settings.root_key)
    make_tables(settings.database)
    return settings.data


@pytest.mark.parametrize("command", ["dev", "serve"])
def test_a_registry_does_the_jobs_that_are_put_in(data: Path, command: str) -> None:
    async def scenario(database: Database) -> None:
        job = await put_in(database)
        await drain(database)
        assert await database.read(list_effects) == [(job, step) for step in range(STEPS)]
        assert (await get(database, job)).state == "succeeded"

    with running(data, command) as registry:
        with_jobs(data, scenario)
        status, _ = registry.stop()
    assert status == 0


STORAGE_CHORES: Final = ("abandoned_uploads", "condemned_pieces", "deleted_keys", "orphaned_bytes")


@pytest.mark.parametrize("command", ["dev", "serve"])
def test_a_registry_takes_turns_at_the_chores_that_come_round(data: Path, command: str) -> None:
    """Those that were due while it was down, at once; its own do not stand in the schedule."""
    overdue = "registry.deleted_tags"

    async def make_overdue(database: Database) -> None:
        await database.write(schedule_rows.insert_missing, {overdue: 0})

    async def scenario(database: Database) -> None:
        async def is_done() -> bool:
            return (await database.read(all_turns))[overdue].ended_at is not None

        await until(is_done)
        chores = await database.read(all_turns)
        assert chores[overdue].due_at > system_clock() - 60_000_000
        only_served = {"audit.expired_events", "kms.due_deletions"}
        only_served |= {"certificate.expired", "certificate.renewals"}
        only_served |= {"certificate.revocation_lists"}
        only_served |= {"email.dedicated_ips", "email.identity_checks"}
        only_served |= {"database.backups", "database.checks"}
        only_served |= {"billing.closing", "metering.samples"}
        only_served |= {"queue.deleted_queues", "queue.due_messages"}
        only_served |= {f"storage.{name}" for name in STORAGE_CHORES}
        of_serve = only_served if command == "serve" else set()
        assert chores.keys() == of_serve | {
            "kernel.rate_windows",
            "kernel.nodes",
            "kernel.undelivered_events",
            "platform.ended_rows",
            "registry.cached_images",
            "registry.deleted_images",
            "registry.deleted_keys",
            "registry.deleted_repositories",
            "registry.deleted_tags",
            "registry.ended_uploads",
            "registry.expired_uploads",
            "registry.garbage_collection",
            "registry.lifecycle",
            "registry.manifest_scrub",
            "registry.orphan_scan",
            "registry.repository_days",
            "registry.scrub",
            "registry.seal",
            "registry.stored_bytes",
            "registry.search_index",
            "registry.tag_history",
        }

    with_jobs(data, make_overdue)
    with running(data, command) as registry:
        with_jobs(data, scenario)
        status, _ = registry.stop()
    assert status == 0


def test_what_a_killed_registry_was_doing_another_resumes(data: Path) -> None:
    async def drain_and_look(database: Database) -> None:
        await drain(database)
        assert await database.read(list_effects) == [(job, step) for step in range(STEPS)]
        assert (await get(database, job)).state == "succeeded"

    with running(data, mode="stuck") as killed:
        job = with_jobs(data, put_in)
        assert killed.read() == f"step {job} None"
        with running(data) as other:  # sees the job only when its lease is over
            killed.kill()
            with_jobs(data, drain_and_look)
            status, told = other.stop()
    assert status == 0
    assert told == [f"step {job} {cursor}" for cursor in (None, 1, 2)]


def test_a_registry_ends_in_time_though_a_step_does_not(data: Path) -> None:
    with running(data, mode="stuck") as stuck:
        job = with_jobs(data, put_in)
        assert stuck.read() == f"step {job} None"
        assert stuck.stop() == (0, [])
    with running(data):
        with_jobs(data, drain)


def test_changes_of_both_planes_wake_the_worker(data: Path) -> None:
    """The worker looks once an hour by itself; only a commit of its own process rouses it."""
    settings = Settings(data)

    async def make_account(database: Database) -> FirstCredentials:
        keyring = load_keyring(settings.root_key)
        names = {"handle": "acme", "email": "a@example.org"}
        return await create_first_account(database, keyring, uuid7, system_clock(), **names)

    first = with_jobs(data, make_account)
    told = f"deliver {first.account_id}"
    with (
        running(data, "serve", poll_seconds=3600) as registry,
        httpx.Client(base_url=registry.url, timeout=60) as client,
    ):

        def call(method: str, path: str, **options: Any) -> Any:  # noqa: ANN401 - httpx's
            answer = client.request(method, path, **options)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        form = {"grant_type": "client_credentials"}
        pair = (first.access_key_id, first.secret_access_key)
        token = call("POST", "/v1/oauth/token", data=form, auth=pair)["access_token"]
        signed = {"Authorization": f"Bearer {token}"}
        topic = f"crn:notifications:local:{first.account_id}:topic/all"
        call("POST", "/v1/topics", json={"name": "all"}, headers=signed)
        rule = {"topic": topic, "event_types": ["registry.*"]}
        call("POST", "/v1/event-rules", json=rule, headers=signed)
        made = call("POST", "/v1/repositories", json={"name": "app"}, headers=signed)
        assert registry.read() == told

        login = call("POST", "/v1/authorization-token", headers=signed)["password"]
        scope = {"scope": "repository:acme/app:pull,push"}
        bearer = call("GET", "/v2/token", params=scope, auth=("token", login))["token"]
        call(
            "PUT",
            "/v2/acme/app/manifests/v1",
            json={"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []},
            headers={"Authorization": f"Bearer {bearer}", "Content-Type": OCI_INDEX},
        )
        assert registry.read() == told

        tag = f"/v1/repositories/{made['repository']['id']}/tags/v1"
        call("DELETE", tag, headers=signed)
        assert registry.read() == told
