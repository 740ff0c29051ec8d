"""The routes of ``entrepot serve`` and the table of operations: one and the same."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

from cloudcore.keyring import create_root_key
from cloudcore.web.app import ControlPlane
from registry.main import open_context, prepare
from registry.served import ServedRegistry
from registry.settings import Settings
from tests.spec.operations import OPERATIONS, differences


async def routes_of_the_whole(settings: Settings) -> ControlPlane:
    async with open_context(settings) as ctx, AsyncExitStack() as resources:
        planes = await ServedRegistry(settings).make_planes(ctx, resources)
        return cast("ControlPlane", planes.control)


def test_every_route_is_in_the_table_and_the_other_way_round(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    prepare(settings)
    create_root_key(settings.root_key)
    control = asyncio.run(routes_of_the_whole(settings))
    assert differences([route.facts for route in control.routes], OPERATIONS) == []
