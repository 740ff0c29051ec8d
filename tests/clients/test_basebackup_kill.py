"""A copy of a server elsewhere is cut off halfway: it says so, leaves nothing, and is made anew."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.databases.archive import BackupFailed, BackupTarget, RegisteredEndpoint
from tests.archive_world import (
    PASSWORD,
    ArchiveWorld,
    Server,
    open_archive_world,
    runs_of,
    until,
)
from tests.tools import require_tool

pytestmark = pytest.mark.timeout(180)
HALFWAY: Final = 1 << 20
"""Bytes of a copy of some forty that cannot be compressed much."""
PROGRAM: Final = "pg_basebackup"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    require_tool("bwrap")
    with tempfile.TemporaryDirectory(prefix="entrepot-copies-") as name:
        made = Path(name)
        made.chmod(0o711)
        yield made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    made = Server(folder / "server")
    made.make()
    made.start()
    made.sql("CREATE TABLE things AS SELECT gen_random_uuid() FROM generate_series(1, 1000000)")
    quoted = PASSWORD.replace("'", "''")
    made.sql(f"CREATE ROLE copier LOGIN REPLICATION PASSWORD '{quoted}'")
    yield made
    made.stop("immediate")


@pytest.fixture(scope="module")
async def world(folder: Path, server: Server) -> AsyncIterator[ArchiveWorld]:
    async with open_archive_world(folder, lambda _target: server.place) as made:
        yield made


def of(world: ArchiveWorld, server: Server) -> tuple[BackupTarget, str]:
    """Return a cluster that runs elsewhere, and the id of a backup."""
    endpoint = RegisteredEndpoint("127.0.0.1", server.port, "copier", PASSWORD, server.ca)
    return world.target(endpoint), uuid7(world.needs.clock())


def halfway(above: int) -> list[int]:
    """Return the runs that have written a part of their copy."""
    found = []
    for each in runs_of(PROGRAM, above):
        with suppress(OSError):
            fields = dict(
                line.split(": ") for line in Path(f"/proc/{each}/io").read_text().splitlines()
            )
            if int(fields["wchar"]) > HALFWAY:
                found.append(each)
    return found


async def _is_made_anew(world: ArchiveWorld, target: BackupTarget, backup_id: str) -> None:
    assert await world.archives.listed(target) == []
    assert await world.keys(target) == []
    await world.archives.back_up(target, backup_id, "base", lambda _percent: None)
    assert [each.backup_id for each in await world.archives.listed(target)] == [backup_id]
    await world.archives.remove_all(target)


def kill(_server: Server) -> None:
    for each in halfway(os.getpid()):
        os.kill(each, signal.SIGKILL)


def let_go(server: Server) -> None:
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (kill, "it was ended by signal 9"),
        (let_go, "pg_basebackup: error: could not read COPY data"),
    ],
)
async def test_a_copy_that_is_cut_off_says_why_with_the_programs_last_lines(
    world: ArchiveWorld, server: Server, cut: Callable[[Server], None], words: str
) -> None:
    target, backup_id = of(world, server)
    copying = asyncio.create_task(
        world.archives.back_up(target, backup_id, "base", lambda _percent: None)
    )
    await until(lambda: bool(halfway(os.getpid())))
    cut(server)
    with pytest.raises(BackupFailed, match=words) as raised:
        await copying
    assert PASSWORD not in str(raised.value)
    assert runs_of(PROGRAM, os.getpid()) == []
    await _is_made_anew(world, target, backup_id)


async def test_a_service_that_is_killed_takes_its_copy_along(
    world: ArchiveWorld, server: Server
) -> None:
    target, backup_id = of(world, server)
    worker = await world.back_up_elsewhere(target, server, backup_id)
    await until(lambda: bool(halfway(worker.pid)))
    running = runs_of(PROGRAM, worker.pid)
    worker.kill()
    await worker.wait()
    await until(lambda: not any(Path(f"/proc/{each}").exists() for each in running))
    await until(lambda: server.sql("SELECT count(*) FROM pg_stat_replication") == [(0,)])
    await _is_made_anew(world, target, backup_id)
