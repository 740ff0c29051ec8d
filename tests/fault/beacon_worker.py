"""A worker to be killed: ``python -m tests.fault.beacon_worker URL FOLDER PLACE``.

It builds beacons in a folder, and takes them down. At a place of that name it says so, and waits
for death.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.jobs.worker import JobWorker
from tests.beacons import WORK, BeaconNeeds
from tests.dying import DyingDatabase
from tests.fault.certificate_worker import PACE, Death


def worker(database: Database, folder: Path, place: str = "") -> JobWorker:
    """Return a worker that waits for death at a place; at none, it works."""
    death = Death(place)
    dying = DyingDatabase(database, death.come_to_write)
    needs = BeaconNeeds(dying, folder, come_to=death.come_to)
    return JobWorker(dying, [WORK.job_kind(needs)], pace=PACE)


async def main(url: str, folder: str, place: str) -> None:
    """Work until killed."""
    await worker(open_database(url), Path(folder), place).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
