"""What a registry holds in memory before its first request."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from benchmarks.processes import process_tree, proportional_bytes
from tests.databases import planted
from tests.entrepot import initialized
from tests.live import start_registry

MOST_MIB: Final = 170
"""It is 163, also with PostgreSQL; less if other programs share the libraries."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("install") / "data"
    initialized(planted(data))
    return data


@pytest.mark.usefixtures("uncovered")
def test_two_workers_share_the_memory_of_their_parent(data: Path) -> None:
    registry = start_registry(data, "--workers", "2", command="serve", forks=False)
    try:
        pids = process_tree(registry.process.pid)
        held = sum(proportional_bytes(pid) for pid in pids)
        assert len(pids) == 3
        assert len(list(Path(f"/proc/{registry.process.pid}/task").iterdir())) == 1
        assert held < MOST_MIB << 20
    finally:
        assert registry.stop() == 0, registry.log
