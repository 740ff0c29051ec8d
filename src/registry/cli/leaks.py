"""``entrepot fsck --remove-leaks``: stored files that belong to nobody go."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from registry.blobstore.base import BlobSweeper
from registry.cli.failure import Failure
from registry.gc.leaks import PLACES, Found, find_leaks, remove_leaks, together
from registry.services.context import Context

Show = Callable[[str], None]


async def remove_all_leaks(ctx: Context, sweeper: BlobSweeper, show: Show) -> int:
    """Remove the leaks of every place, and return how many there were.

    All are counted before the first is removed: where the metadata are not those of these files,
    each place of a small registry may look harmless, and only all of them together do not.

    Raises:
        Failure: more is unknown than crashes leave, in all places together or in some.

    """
    places = await _look(ctx, sweeper, show)
    whole = together(places.values())
    if whole.leaks and not (whole.owned and whole.is_credible):
        raise Failure(
            f"{len(whole.leaks)} of {whole.files} stored files belong to nobody, more than"
            " crashes leave: none was removed. Are blobs and database of one registry (--data,"
            " ENTREPOT_DATABASE_URL), and is the database no older than the blobs?"
        )
    removed = 0
    for place, found in places.items():
        show(f"removing leaks, place {place + 1} of {PLACES}")
        if found.leaks and found.is_credible:
            removed += await remove_leaks(ctx, sweeper, place)
    doubtful = [_name(place) for place, found in places.items() if not found.is_credible]
    if doubtful:
        raise Failure(
            f"{removed} leaks removed, but none from {', '.join(doubtful)}: of the files there"
            " more belong to nobody than crashes leave"
        )
    return removed


async def _look(ctx: Context, sweeper: BlobSweeper, show: Show) -> Mapping[int, Found]:
    places = {}
    for place in range(PLACES):
        show(f"looking for leaks, place {place + 1} of {PLACES}")
        places[place] = await find_leaks(ctx, sweeper, place)
    return places


def _name(place: int) -> str:
    return "uploads" if place == PLACES - 1 else f"objects/{place:02x}"
