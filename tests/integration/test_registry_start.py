"""A registry whose start fails leaves nothing open: no file, no thread, no lock."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cloudcore.family import Family
from cloudcore.ports import Opening
from registry.main import DEV, PlaneApplications, Registry, prepare
from registry.settings import Settings


async def test_what_a_failed_start_opened_is_closed(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    prepare(settings)
    closed: list[str] = []

    async def open_needs(opening: Opening) -> None:
        opening.resources.callback(closed.append, "made by a family")

    async def fail(*_: object) -> PlaneApplications:
        raise LookupError("no planes")

    before = set(threading.enumerate())
    family = Family[None](name="test", open=open_needs)
    registry = Registry(settings, replace(DEV, families=(*DEV.families, family), make_planes=fail))
    with pytest.raises(LookupError, match="no planes"):
        await registry.start()
    assert closed == ["made by a family"]
    assert list((settings.data / "workers").iterdir()) == []
    left = {each.name for each in set(threading.enumerate()) - before}
    assert not [name for name in left if not name.startswith("asyncio_")]  # those are the loop's
