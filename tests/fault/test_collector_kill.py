"""SIGKILL at every step of collector and orphan scan: the next runs finish, nothing is lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.collector_kills import KINDS
from tests.loaded import program_environment, run_loaded


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder in memory: a kill leaves the page cache whole, so no disk is needed."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_step_costs_nothing(migrated_file: Path, folder: Path, kind: str) -> None:
    shutil.copy(migrated_file, folder / "metadata.db")
    words = str(folder), kind
    ended = run_loaded("tests.fault.collector_kills", words, program_environment(), timeout=290)
    assert ended.returncode == 0, ended.stderr
