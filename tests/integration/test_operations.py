"""The routes of ``entrepot serve`` and the table of operations: one and the same."""

from __future__ import annotations

from pathlib import Path

from cloudcore.keyring import create_root_key
from registry.composition.main import prepare
from registry.settings.settings import Settings
from tests.databases import planted
from tests.integration.served_world import routes_of_the_whole
from tests.spec.operations import OPERATIONS, differences


async def test_every_route_is_in_the_table_and_the_other_way_round(tmp_path: Path) -> None:
    settings = Settings(data=planted(tmp_path / "data"))
    prepare(settings)
    create_root_key(settings.root_key)
    control = await routes_of_the_whole(settings)
    assert differences([route.spec for route in control.routes], OPERATIONS) == []
