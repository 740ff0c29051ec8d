"""A registry whose start fails leaves nothing open: no file, no thread, no lock."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from registry.main import DEV, PlaneApplications, Registry, prepare
from registry.process import Process
from registry.settings import Settings


async def test_what_a_failed_start_opened_is_closed(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    prepare(settings)
    closed: list[str] = []

    async def surround(process: Process, resources: AsyncExitStack) -> Process:
        resources.callback(closed.append, "made by the edition")
        return process

    async def fail(*_: object) -> PlaneApplications:
        raise LookupError("no planes")

    before = set(threading.enumerate())
    registry = Registry(settings, replace(DEV, surround=surround, make_planes=fail))
    with pytest.raises(LookupError, match="no planes"):
        await registry.start()
    assert closed == ["made by the edition"]
    assert list((settings.data / "workers").iterdir()) == []
    left = {each.name for each in set(threading.enumerate()) - before}
    assert not [name for name in left if not name.startswith("asyncio_")]  # those are the loop's
