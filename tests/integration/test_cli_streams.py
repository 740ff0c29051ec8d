"""The command where standard streams are closed, full, or nobody reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.entrepot import Home
from tests.integration.cli_world import cli_world

COMMAND = f"{sys.executable} -m registry"
BUFFERED = {"PYTHONUNBUFFERED": ""}
"""Lets Python write when it has 8 KiB or ends, as it does unless this variable says otherwise."""


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("--help >&-", 0, ""),
        ("--help >/dev/full", 1, "entrepot: No space left on device\n"),
        ("--version >/dev/full", 1, "entrepot: No space left on device\n"),
        ("completion bash >&-", 0, ""),
        ("completion bash >/dev/full", 1, "entrepot: No space left on device\n"),
        ("images list app 2>&-", 4, ""),
        ("images list app <&- >&- 2>&-", 4, ""),
        ("lifecycle preview app - <&-", 2, "entrepot: the standard input holds no JSON object: "),
    ],
)
def test_a_stream_that_is_not_there_is_no_fault_of_the_command(
    line: str, status: int, told: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    ended = subprocess.run(
        ["bash", "-c", f"{COMMAND} {line}"],
        capture_output=True,
        text=True,
        check=False,
        env=home.environ | BUFFERED,
        timeout=60,
    )
    assert ended.returncode == status, ended.stderr
    assert ended.stderr.startswith(told)
    assert ended.stderr.count("\n") == bool(told)


@pytest.mark.parametrize("line", ["images --help", "completion bash"])
def test_what_nobody_reads_ends_quietly(line: str, tmp_path: Path) -> None:
    check_that_it_ends_quietly(line, Home(tmp_path))


def test_a_list_that_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    """Signed in, as a command that talks to a registry ends by a path of its own."""
    with cli_world(tmp_path / "world") as world:
        for number in range(3):
            world.push("app", f"v{number}")
        line = "images list app --output json"
        assert len(world.done(*line.split()).document) == 3
        check_that_it_ends_quietly(line, world.home)


def check_that_it_ends_quietly(line: str, home: Home) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [*COMMAND.split(), *line.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=home.environ | BUFFERED,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")
