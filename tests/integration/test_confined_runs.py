"""Programs that read what is hostile: what they write is taken, and their memory is bounded."""

from __future__ import annotations

import os

import pytest

from cloudcore.databases.servers.confinement import ConfinedProgram, User, run
from tests.tools import require_tool

NOBODY: User = (65_534, 65_534) if os.geteuid() == 0 else None


@pytest.fixture(autouse=True)
def _confined() -> None:
    require_tool("bwrap")


async def test_all_backups_of_a_cluster_fit_one_line() -> None:
    lines: list[str] = []
    argv = ("/usr/bin/head", "-c", "17000000", "/dev/zero")
    ended = await run(ConfinedProgram(argv=argv, user=NOBODY), lines.append)
    assert (ended.status, [len(each) for each in lines]) == (0, [17_000_000])


async def test_memory_is_bounded() -> None:
    argv = ("/usr/bin/prlimit", "--as", "--raw", "--noheadings", "--output", "HARD")
    assert int((await run(ConfinedProgram(argv=argv, user=NOBODY))).said) == 4 << 30
