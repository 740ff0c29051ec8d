"""The routes of ``entrepot serve`` and the table of operations: one and the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from cloudcore.keyring import create_root_key
from cloudcore.web.app import ControlPlane
from registry.main import Registry, prepare
from registry.served import SERVE
from registry.settings import Settings
from tests.spec.operations import OPERATIONS, differences


async def routes_of_the_whole(settings: Settings) -> ControlPlane:
    async with Registry(settings, SERVE).open_planes() as (_, planes):
        return cast("ControlPlane", planes.control)


def test_every_route_is_in_the_table_and_the_other_way_round(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    prepare(settings)
    create_root_key(settings.root_key)
    control = asyncio.run(routes_of_the_whole(settings))
    assert differences([route.facts for route in control.routes], OPERATIONS) == []
