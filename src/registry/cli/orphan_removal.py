"""``entrepot fsck --remove-orphans``: set aside stored files that belong to no row."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from registry.blobstore.base import BlobSweeper
from registry.cli.failure import CommandFailure
from registry.gc.generations import DatabaseWentBack, check_generation
from registry.gc.orphans import (
    STAGED,
    Found,
    TooNew,
    check_newest,
    find_orphans,
    places_of,
    set_orphans_aside,
    together,
)
from registry.services.context import ServiceContext

Show = Callable[[str], None]


async def set_all_orphans_aside(ctx: ServiceContext, sweeper: BlobSweeper, show: Show) -> int:
    """Set the orphans of every place aside, and return how many there were.

    Count them all before moving the first: with the wrong database, each place of a small
    registry may have few orphans, but all places together have too many.

    Raises:
        CommandFailure: the database seems to be the wrong one, or more files belong to no row
            than crashes leave, in all places together or in some.

    """
    await _check(check_generation(ctx, sweeper))
    places = await _scan_places(ctx, sweeper, show)
    whole = together(places.values())
    if whole.is_foreign:
        raise CommandFailure(
            f"{whole.doubtful} of {whole.files} stored files belong to no row, more than"
            " crashes leave: none was set aside. Are blobs and database of one registry (--data,"
            " ENTREPOT_DATABASE_URL), and is the database no older than the blobs? If it is the"
            " right one, run 'entrepot gc accept-database'"
        )
    await _check(check_newest(ctx, sweeper, whole.orphans))
    moved = 0
    for number, (place, found) in enumerate(places.items(), 1):
        show(f"setting orphans aside, place {number} of {len(places)}")
        if found.orphans and found.is_credible:
            moved += await set_orphans_aside(ctx, sweeper, place)
    doubtful = [_name(place) for place, found in places.items() if not found.is_credible]
    if doubtful:
        raise CommandFailure(
            f"{moved} orphans set aside, but none from {', '.join(doubtful)}: of the files there"
            " more belong to no row than crashes leave; is this the right database?"
        )
    return moved


async def _check(checking: Coroutine[Any, Any, None]) -> None:
    try:
        await checking
    except (DatabaseWentBack, TooNew) as error:
        raise CommandFailure(str(error)) from None


async def _scan_places(
    ctx: ServiceContext, sweeper: BlobSweeper, show: Show
) -> Mapping[str, Found]:
    places = places_of(sweeper)
    found = {}
    for number, place in enumerate(places, 1):
        show(f"looking for orphans, place {number} of {len(places)}")
        found[place] = await find_orphans(ctx, sweeper, place)
    return found


def _name(place: str) -> str:
    return place if place == STAGED else f"objects/{place}"
