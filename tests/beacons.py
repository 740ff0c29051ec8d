"""Beacons: a kind of resource with work, made up to test the kernel's.

One is built in three steps, each of which leaves a piece in a folder, and taken down in two. A
line of a log for each step that begins tells how often it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, structs

import cloudcore.identity.tables  # noqa: F401 - accounts own beacons
from cloudcore.clock import Clock, system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.schema import one_of
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import DELETING, Resource, Worked, fixed, given, own
from cloudcore.resources.rows import Rows
from cloudcore.resources.workflow import Goal, Step, StepAttempt, StepDone, StepRetry, Work
from registry.metadata.database import migration_connection
from tests.kms_world import ACME, add_account

BUILDING: Final = ("ground", "tower", "lamp")
REMOVAL: Final = ("put_out", "tear_down")
FIRST_RETRY: Final = 10
LONGEST_RETRY: Final = 60


class Beacon(Worked, frozen=True, kw_only=True):
    """A beacon."""

    name: Annotated[str, Meta(min_length=1, max_length=63), fixed("the name; fixed")]
    height: Annotated[int, Meta(ge=1, le=100), given("in metres")] = 10
    status: Annotated[Literal["building", "lit", "failed", "deleting"], own()] = "building"
    generation: Annotated[int, own(hidden=True)] = 1
    """Counts what its owner wants, one after the other."""
    built: Annotated[int, own(hidden=True)] = 0
    """The generation that was built."""


def _nowhere(_place: str) -> Awaitable[None]:
    async def pass_by() -> None:
        """Go on."""

    return pass_by()


@dataclass(frozen=True)
class BeaconNeeds:
    """Where beacons are built."""

    database: Database
    folder: Path
    clock: Clock = system_clock
    come_to: Callable[[str], Awaitable[None]] = _nowhere
    """Is called with the name of a step before what it does outside, and with ``… done`` behind."""

    def piece(self, found: Beacon, name: str) -> Path:
        """Return the file of a piece of a beacon."""
        return self.folder / f"{found.id}.{name}"

    async def begin(self, found: Beacon, name: str) -> None:
        """Note that a step begins."""
        with (self.folder / "log").open("a") as log:
            log.write(f"{found.id} {name}\n")
        await self.come_to(name)

    def steps_of(self, beacon_id: str) -> list[str]:
        """Return the steps that began of a beacon, in order."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [name for each, name in (line.split() for line in lines) if each == beacon_id]

    def pieces(self) -> list[str]:
        """Return what stands of all beacons: pieces and their heights."""
        found = [each for each in self.folder.iterdir() if each.name != "log"]
        return sorted(f"{each.suffix[1:]} {each.read_text()}" for each in found)


Outcome = StepDone[Beacon] | StepRetry[Beacon]


async def _build(found: Beacon, needs: BeaconNeeds, attempt: StepAttempt) -> Outcome:
    """Build the piece after which the step is called."""
    await needs.begin(found, attempt.step)
    needs.piece(found, attempt.step).write_text(str(found.height))
    await needs.come_to(f"{attempt.step} done")
    following = BUILDING.index(attempt.step) + 1
    if following < len(BUILDING):
        return StepDone(next=BUILDING[following])
    return StepDone(change=lambda current, _now: _lit(current, found.generation))


async def _put_out(found: Beacon, needs: BeaconNeeds, attempt: StepAttempt) -> Outcome:
    """Take the lamp away."""
    await needs.begin(found, attempt.step)
    needs.piece(found, "lamp").unlink(missing_ok=True)
    await needs.come_to(f"{attempt.step} done")
    return StepDone(next="tear_down")


async def _tear_down(found: Beacon, needs: BeaconNeeds, attempt: StepAttempt) -> Outcome:
    """Take the rest away."""
    await needs.begin(found, attempt.step)
    for name in BUILDING:
        needs.piece(found, name).unlink(missing_ok=True)
    await needs.come_to(f"{attempt.step} done")
    return StepDone()


def _lit(current: Beacon, generation: int) -> Beacon:
    status: Literal["lit", "building"] = "lit" if current.generation == generation else "building"
    return structs.replace(current, built=generation, status=status)


def _goal(found: Beacon, _now: int) -> Goal | None:
    if found.status == DELETING:
        return Goal("put_out")
    if found.status != "failed" and found.built != found.generation:
        return Goal("ground", found.generation)
    return None


def _before_save(tx: Connection, new: Beacon, old: Beacon | None) -> Beacon:
    if old is not None:
        new = structs.replace(new, generation=old.generation + 1, status="building")
    return WORK.begin(tx, new, old)


BEACON: Final = Resource(
    record=Beacon, service="test", one="beacon", many="beacons", warnings=frozenset({"NO_STONES"})
)
ROWS: Final = Rows(BEACON, one_of("status", "building", "lit", "failed", DELETING))
# Not in the schema of the product, so that its migrations know nothing of it.
ROWS.table.metadata.remove(ROWS.table)
WORK: Final = Work(
    ROWS,
    goal=_goal,
    steps={
        **{name: Step(_build, FIRST_RETRY, LONGEST_RETRY) for name in BUILDING},
        "put_out": Step(_put_out, FIRST_RETRY, LONGEST_RETRY),
        "tear_down": Step(_tear_down, FIRST_RETRY, LONGEST_RETRY),
    },
)
BEACONS: Final = Methods(ROWS, before_save=_before_save, removal=WORK.delete)


def make_beacons(url: str) -> None:
    """Add the table of beacons, and an account."""
    with migration_connection(url) as connection:
        ROWS.table.create(connection)


async def add_owner(database: Database) -> None:
    """Add the account whose beacons they are."""
    await database.write(add_account, ACME)


async def new_beacon(database: Database, now: int, name: str = "") -> Beacon:
    """Let a beacon be built."""
    identity = uuid7(now)
    new = Beacon(
        id=identity,
        account_id=ACME,
        region="local",
        name=name or f"b{identity.rpartition('-')[2]}",
        created_at=now,
        updated_at=now,
    )
    return await database.write(BEACONS.create, new)


def find(tx: Connection, beacon_id: str) -> Beacon | None:
    """Return a beacon as it is now, or None."""
    return ROWS.find(tx, ACME, beacon_id)
