"""A family is added by one line: its routes, jobs, timers and expiry work with all the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import httpx
from sqlalchemy import select

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.keyring import create_root_key
from cloudcore.web.app import ControlPlane
from registry.composition.families import FAMILIES
from registry.composition.family import REGISTRY
from registry.composition.main import Registry, expiry, prepare
from registry.composition.planes import dispatcher
from registry.composition.serve import SERVE
from registry.settings.settings import Settings
from tests.control_plane import raw_engine
from tests.databases import planted
from tests.things import HANDLERS, THINGS, CreateThing, add_thing, things, things_metadata

WITH_THINGS: Final = replace(SERVE, families=(*FAMILIES, THINGS))  # the one line
_NAMES: Final = Statement(select(things.c.name))


def _add_old_thing(tx: Connection) -> None:
    add_thing(tx, "1", "2", CreateThing(name="old"), 0)


async def _names(database: Database) -> list[Any]:
    return [row[0] for row in await database.read(lambda tx: tx.rows(_NAMES))]


async def test_a_family_is_added_by_one_line(tmp_path: Path) -> None:
    settings = Settings(data=planted(tmp_path / "data"), public_url="http://registry.test")
    prepare(settings)
    create_root_key(settings.root_key)
    with raw_engine(settings.database) as engine:
        things_metadata.create_all(engine)

    registry = Registry(settings, WITH_THINGS)
    async with registry.open_planes() as (opening, planes):
        process = await opening.needs_of(REGISTRY)
        control = cast("ControlPlane", planes.control)
        found = {route.spec.operation for route in control.routes}
        assert len([each for each in found if "/things" in each]) == 7
        assert len(found) > len(HANDLERS) + 100  # those of all other families are there
        transport = httpx.ASGITransport(cast("Any", dispatcher(planes.data, planes.control)))
        async with httpx.AsyncClient(transport=transport, base_url=settings.url) as client:
            assert (await client.get("/v1/weather")).json() == {"is_fine": True}
            assert (await client.get("/v1/things")).status_code == 401
            described = (await client.get("/v1/openapi.json")).json()
            assert "/v1/things/{thing_id}" in described["paths"]
        database = process.ctx.database
        await database.write(_add_old_thing)
        assert await _names(database) == ["old"]
        await expiry(WITH_THINGS.families, database, process.ctx.clock).run()
        assert await _names(database) == []
        runtimes = [(each.runtime, await opening.needs_of(each)) for each in WITH_THINGS.families]
        kinds = [kind.name for runtime, needs in runtimes for kind in runtime.job_kinds(needs)]
        chores = [chore.name for runtime, needs in runtimes for chore in runtime.schedule(needs)]
        for name, all_of_them in (("test.grow", kinds), ("test.look", chores)):
            assert name in all_of_them
            assert len(set(all_of_them)) == len(all_of_them) > 1
