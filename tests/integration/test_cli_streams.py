"""The command where standard streams are closed, full, or nobody reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.entrepot import Home

COMMAND = f"{sys.executable} -m registry"


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("--help >&-", 0, ""),
        ("completion bash >&-", 0, ""),
        ("completion bash >/dev/full", 1, "entrepot: No space left on device\n"),
        ("completion bash | true; exit ${PIPESTATUS[0]}", 1, ""),
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
        env=home.environ,
        timeout=60,
    )
    assert ended.returncode == status, ended.stderr
    assert ended.stderr.startswith(told)
    assert ended.stderr.count("\n") == bool(told)
