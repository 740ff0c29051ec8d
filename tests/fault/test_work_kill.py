"""Workers killed between any two steps of the work of a resource, and within each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import system_clock
from cloudcore.db.base import Database
from tests.beacons import (
    BEACONS,
    BUILDING,
    REMOVAL,
    WORK,
    Beacon,
    BeaconNeeds,
    add_owner,
    find,
    make_beacons,
    new_beacon,
)
from tests.databases import on_both_databases
from tests.fault.beacon_worker import worker
from tests.fault.certificate_worker import LEASE
from tests.fault.deaths import be_killed
from tests.jobs import end_leases, running, until

PLACES: Final = (
    LEASE,
    *(f"{step}{end}" for step in (*BUILDING, *REMOVAL) for end in ("", " done")),
)
"""Before the job is taken; before each step does its own, and before that is stored."""


async def kill_at(url: str, folder: Path, place: str) -> None:
    """Kill a worker when it has come to a place, and let its lease run out."""
    await be_killed(place, "tests.fault.beacon_worker", url, str(folder))
    ended = await asyncio.to_thread(end_leases, url)
    assert ended == ([] if place == LEASE else [WORK.name])


@on_both_databases
@pytest.mark.timeout(180)
async def test_a_worker_killed_at_any_step_loses_none_and_repeats_but_that_one(
    database: Database, metadata_url: str, tmp_path: Path
) -> None:
    # What SQLite shows of the steps, PostgreSQL would show again; of the ends it is its own.
    places = PLACES if metadata_url.startswith("sqlite") else ("tower done", "tear_down done")
    make_beacons(metadata_url)
    await add_owner(database)
    folder = tmp_path / "shore"
    folder.mkdir()
    needs = BeaconNeeds(database, folder)

    async def reach(made: Beacon, status: str | None) -> None:
        async def is_there() -> bool:
            found = await database.read(find, made.id)
            return (found and found.status) == status

        async with running(worker(database, folder)):
            await until(is_there)

    for place in places:
        made = await new_beacon(database, system_clock())
        step = place.removesuffix(" done")
        if step in BUILDING or place == LEASE:
            await kill_at(metadata_url, folder, place)
        await reach(made, "lit")
        assert needs.pieces() == ["ground 10", "lamp 10", "tower 10"]
        await database.write(BEACONS.remove, made, system_clock())
        if step in REMOVAL:
            await kill_at(metadata_url, folder, place)
            half = await database.read(find, made.id)
            assert half is not None
            assert half.status == "deleting"
        await reach(made, None)
        assert needs.pieces() == []
        again = [step] if step in (*BUILDING, *REMOVAL) else []
        assert sorted(needs.steps_of(made.id)) == sorted([*BUILDING, *REMOVAL, *again])
