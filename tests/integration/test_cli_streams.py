"""The command where standard streams are closed, full, or nobody reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.entrepot import Home

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
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [*COMMAND.split(), *line.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=Home(tmp_path).environ | BUFFERED,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")
