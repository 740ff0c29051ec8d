"""What pgBackRest says of a bucket whose owner may have changed it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from cloudcore.databases.archive.driver import BackupFailed
from cloudcore.databases.archive.pgbackrest import BackupRepository
from cloudcore.databases.servers.confinement import ProgramResult


@pytest.mark.parametrize(
    ("stop", "size", "is_read"),
    [(1, 1, True), (1 << 37, 1 << 60, True), (1 << 38, 1, False), (1, 1 << 64, False)],
)
def test_times_and_sizes_that_nobody_could_store_are_refused(
    monkeypatch: pytest.MonkeyPatch, stop: int, size: int, *, is_read: bool
) -> None:
    backup = {
        "label": "20260101-000000F",
        "timestamp": {"start": 0, "stop": stop},
        "info": {"size": size, "repository": {"delta": 1}},
    }

    async def run(
        _self: BackupRepository, *_words: str, each_line: Callable[[str], None]
    ) -> ProgramResult:
        each_line(json.dumps([{"backup": [backup]}]))
        return ProgramResult(0, "")

    monkeypatch.setattr(BackupRepository, "run", run)
    nothing = cast("Any", None)
    repository = BackupRepository(cluster_id="1", keys=nothing, storage=nothing, bridge=nothing)
    if is_read:
        (found,) = asyncio.run(repository.backups())
        assert found.size_bytes == size
    else:
        with pytest.raises(BackupFailed, match="odd"):
            asyncio.run(repository.backups())
