"""A server elsewhere is copied and restored; what is cut off says so, and is done again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.databases.archive.driver import BackupFailed, BackupTarget
from tests.archive_world import (
    PASSWORD,
    ArchiveWorld,
    Server,
    killing,
    open_archive_world,
    registered,
    restored_into,
    runs_of,
)
from tests.certificates import self_signed
from tests.tools import require_tool
from tests.waiting import until_so

pytestmark = pytest.mark.timeout(180)
HALFWAY: Final = 1 << 20
"""Bytes of a copy of more than forty million, half of which cannot be compressed much."""
PROGRAM: Final = "pg_basebackup"
PYTHON: Final = Path(sys.executable).resolve().name
_SEEN: Final = "SELECT count(*), min(things::text), max(things::text) FROM things"


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
    made.sql("CREATE TABLE things AS SELECT gen_random_uuid() FROM generate_series(1, 500000)")
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
    return world.target(registered(server)), uuid7(world.needs.clock())


async def stopped_halfway(service_pid: int) -> list[int]:
    """Stop the runs of a service once they have written a part of their copy; return them."""
    found: list[int] = []

    def are_found() -> bool:
        found.extend(_stop_halfway(service_pid))
        return bool(found)

    await until_so(are_found, "no copy is halfway")
    return found


def _stop_halfway(service_pid: int) -> list[int]:
    found = []
    for each in runs_of(PROGRAM, service_pid):
        with suppress(OSError):
            fields = dict(
                line.split(": ") for line in Path(f"/proc/{each}/io").read_text().splitlines()
            )
            if int(fields["wchar"]) > HALFWAY:
                os.kill(each, signal.SIGSTOP)
                found.append(each)
    return found


async def _is_made_anew(world: ArchiveWorld, target: BackupTarget, backup_id: str) -> None:
    assert await world.archives.listed(target) == []
    assert await world.keys(target) == []
    await world.archives.back_up(target, backup_id, "base", lambda _percent: None)
    assert [each.backup_id for each in await world.archives.listed(target)] == [backup_id]
    await world.archives.remove_all(target)


def kill(_server: Server, stopped: list[int]) -> None:
    for each in stopped:
        os.kill(each, signal.SIGKILL)


def let_go(server: Server, stopped: list[int]) -> None:
    assert server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
    for each in stopped:
        os.kill(each, signal.SIGCONT)


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (kill, "it was ended by signal 9"),
        (let_go, "pg_basebackup: error: could not read COPY data"),
    ],
)
async def test_a_copy_that_is_cut_off_says_why_with_the_programs_last_lines(
    world: ArchiveWorld, server: Server, cut: Callable[[Server, list[int]], None], words: str
) -> None:
    target, backup_id = of(world, server)
    copying = asyncio.create_task(
        world.archives.back_up(target, backup_id, "base", lambda _percent: None)
    )
    cut(server, await stopped_halfway(os.getpid()))
    with pytest.raises(BackupFailed, match=words) as raised:
        await copying
    assert PASSWORD not in str(raised.value)
    assert runs_of(PROGRAM, os.getpid()) == []
    await _is_made_anew(world, target, backup_id)


async def test_a_service_that_is_killed_takes_its_copy_along(
    world: ArchiveWorld, server: Server
) -> None:
    target, backup_id = of(world, server)
    async with world.back_up_elsewhere(target, server, backup_id) as (service_pid, _):
        await stopped_halfway(service_pid)
        running = runs_of(PROGRAM, service_pid)
    await until_so(
        lambda: not any(Path(f"/proc/{each}").exists() for each in running), "it runs on"
    )
    await until_so(
        lambda: server.sql("SELECT count(*) FROM pg_stat_replication") == [(0,)], "one is connected"
    )
    await _is_made_anew(world, target, backup_id)


async def test_a_server_elsewhere_is_copied_over_tls_and_restored(
    world: ArchiveWorld, server: Server, folder: Path
) -> None:
    target, told = world.target(registered(server)), list[int]()
    backup_id = uuid7(world.needs.clock())
    made = await world.archives.back_up(target, backup_id, "base", told.append)
    seen = server.sql(_SEEN)
    (listed,) = await world.archives.listed(target)
    assert (listed.label, listed.backup_id, listed.kind) == (made.label, backup_id, "base")
    assert made.size_bytes > made.stored_bytes > 0
    assert told[-1] == 100

    restored = Server(folder / "copied")
    async with killing(PYTHON, "/unpacking.py"):
        with pytest.raises(BackupFailed, match="cannot be unpacked: it was ended by signal 9"):
            await restored_into(world, target, restored.data, restored, made.label)
    recovery = await restored_into(world, target, restored.data, restored, made.label)
    assert not recovery.uses_archive
    restored.configure(archives=False)
    restored.start()
    try:
        assert restored.sql(_SEEN) == seen
    finally:
        restored.stop()

    await world.archives.remove(target, [made.label])
    assert await world.archives.listed(target) == []
    assert await world.keys(target) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"password": "wrong"}, "password authentication failed"),
        ({"ca": "other"}, "certificate verify failed"),
        ({"host": "127.0.0.2"}, "does not match host name"),
        ({"host": "169.254.169.254"}, "not public"),
        ({"username": "nobody"}, "pg_hba.conf"),
    ],
)
async def test_a_copy_that_fails_says_why_and_leaves_nothing(
    world: ArchiveWorld, server: Server, folder: Path, fields: dict[str, str], words: str
) -> None:
    if fields.get("ca"):
        (folder / "other").mkdir()
        fields = {"ca": self_signed(folder / "other", "db.example.com")[0].read_text()}
    target = world.target(registered(server, **fields))
    with pytest.raises(BackupFailed, match=words) as raised:
        await world.archives.back_up(target, uuid7(world.needs.clock()), "base", lambda _: None)
    assert PASSWORD not in str(raised.value)
    assert await world.archives.listed(target) == []
    assert await world.keys(target) == []
