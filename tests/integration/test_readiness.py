"""``/readyz``: which part cannot serve, told in time and to nobody in particular."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg
import pytest

from cloudcore.db import postgresql
from cloudcore.errors import Unavailable
from cloudcore.web import health
from cloudcore.web.health import PATIENCE_SECONDS, Readiness
from registry.composition.dev import DEV
from registry.composition.main import Registry, prepare
from registry.settings.settings import Settings
from tests.databases import planted
from tests.dying import Kind, PassingDatabase

READY = {"database": "ok", "reads": "ok", "writes": "ok"}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take its time where nothing hangs."""
    monkeypatch.setattr(health, "PATIENCE_SECONDS", 60)


async def fine() -> None:
    """Serve."""


async def test_a_hanging_part_is_asked_once_and_told_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "PATIENCE_SECONDS", 0.02)
    asked = 0

    release = asyncio.Event()

    async def hang() -> None:
        nonlocal asked
        asked += 1
        await release.wait()

    readiness = Readiness({"database": hang, "reads": fine})
    late = {"database": "no answer within 0.02 s", "reads": "ok"}
    for _ in range(3):
        assert await asyncio.gather(*(readiness.report() for _ in range(50))) == [late] * 50
    assert asked == 1
    release.set()
    await readiness.report()
    assert await readiness.report() == {"database": "ok", "reads": "ok"}


async def test_the_log_has_each_change_of_an_answer_and_the_cause_of_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "cloudcore.web.health")
    errors: list[Exception | None] = [None, *2 * [Unavailable("it is full")]]
    errors += [*2 * [ZeroDivisionError("seldom")], None, None]

    async def answer() -> None:
        if (error := errors.pop(0)) is not None:
            raise error

    readiness = Readiness({"database": answer})
    while errors:
        await readiness.report()
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "/readyz: database: it is full"),
        ("ERROR", "the probe of database failed"),
        ("WARNING", "/readyz: database: it failed"),
        ("INFO", "/readyz: database: ok"),
    ]
    assert "ZeroDivisionError: seldom" in caplog.text


async def test_who_asks_and_goes_away_takes_no_answer_with_him() -> None:
    release = asyncio.Event()

    async def wait() -> None:
        await release.wait()

    readiness = Readiness({"database": wait})
    gone = asyncio.create_task(readiness.report())
    waiting = asyncio.create_task(readiness.report())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    release.set()
    assert await waiting == {"database": "ok"}


async def test_a_server_that_is_about_to_stop_is_not_ready() -> None:
    leaving: list[bool] = []
    readiness = Readiness({"database": fine}, lambda: bool(leaving))
    assert await readiness.report() == {"database": "ok"}
    leaving.append(True)
    assert await readiness.report() == {
        "server": "it is about to stop: send requests elsewhere",
        "database": "ok",
    }


async def test_a_part_that_fails_tells_what_anybody_may_know() -> None:
    async def away() -> None:
        raise Unavailable("the database cannot do this now")

    async def broken() -> None:
        raise OSError(5, "Input/output error", "/srv/data/blobs")

    readiness = Readiness({"database": away, "reads": broken, "writes": fine})
    assert await readiness.report() == {
        "database": "the database cannot do this now",
        "reads": "it failed",
        "writes": "ok",
    }


def answer(settings: Settings) -> httpx.Response:
    """Return how a registry answers to ``/readyz``."""

    async def run() -> httpx.Response:
        registry = Registry(settings, DEV)
        await registry.start()
        try:
            transport = httpx.ASGITransport(registry.control_plane)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.get("/readyz")
        finally:
            await registry.stop()

    prepare(settings)
    return asyncio.run(run())


def test_a_full_disk_is_told_of_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = os.fstatvfs

    def full(descriptor: int) -> os.statvfs_result:
        found = list(look(descriptor))
        found[4] = 0  # f_bavail
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "fstatvfs", full)
    found = answer(Settings(data=planted(tmp_path)))
    assert (found.status_code, found.json()) == (503, READY | {"writes": "the blob store is full"})


def refuse_unnamed_files(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let no file without a name be made: it ends with the error of this number."""
    make = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, os.strerror(number), path)
        return make(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)


def test_a_disk_that_became_read_only_is_told_of_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ext4 does after an error, without a word in the flags of its file system."""
    refuse_unnamed_files(monkeypatch, errno.EROFS)
    found = answer(Settings(data=planted(tmp_path)))
    assert (found.status_code, found.json()) == (503, READY | {"writes": "the disk is read-only"})


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_all_is_well_also_on_a_file_system_without_unnamed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_unnamed_files: bool
) -> None:
    if not has_unnamed_files:
        refuse_unnamed_files(monkeypatch, errno.EOPNOTSUPP)
    found = answer(Settings(data=planted(tmp_path)))
    assert (found.status_code, found.json()) == (200, READY)


async def test_the_database_is_asked_for_no_account(tmp_path: Path) -> None:
    asked: list[str] = []

    class Watched(PassingDatabase):
        async def before(self, kind: Kind, call: Callable[..., object]) -> None:
            if kind == "read":
                asked.append(call.__name__)

    settings = Settings(data=planted(tmp_path))
    prepare(settings)
    registry = Registry(settings, DEV)
    async with registry.open() as process:
        watched = replace(process.ctx, database=Watched(process.ctx.database))
        assert await registry.readiness(watched).report() == READY
    assert asked == ["accepted_at"]


def test_who_asks_hears_within_a_second() -> None:
    assert PATIENCE_SECONDS < 1


@pytest.mark.postgresql
async def test_a_database_that_is_away_is_told_in_time(
    tmp_path: Path, postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver waits for seconds; who asks for readiness does not."""
    settings = Settings(data=tmp_path, database_url=postgresql_database)
    release = threading.Event()

    def away(url: str) -> psycopg.Connection:
        release.wait(60)
        raise psycopg.OperationalError(url)

    async def ask(report: Callable[[], Awaitable[dict[str, str]]]) -> None:
        assert await report() == READY | {"database": "no answer within 1 s"}

    prepare(settings)
    registry = Registry(settings, DEV)
    async with registry.open() as process:
        # The other parts are asked in threads, which a busy machine may start late.
        monkeypatch.setattr(health, "PATIENCE_SECONDS", 1)
        monkeypatch.setattr(postgresql, "connect", away)
        monkeypatch.setattr(postgresql, "PATIENCE_SECONDS", 0)
        try:
            await ask(registry.readiness(process.ctx).report)
        finally:
            release.set()
