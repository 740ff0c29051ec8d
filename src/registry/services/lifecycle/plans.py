"""The plan of a run: the images to delete, in portions, and the cursor stored between them.

A plan is kept in the memory of the process that runs it, and another process can make it again,
with one exception: referrers expire with their subject, and once a portion has deleted the subject,
the database no longer shows that its other referrers must follow. So the cursor stores the subjects
whose referrers are in later portions.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from cloudcore.db.base import Database
from registry.metadata.lifecycle.images import digests_of
from registry.services.lifecycle.selection import Expired, Selection

PORTION: Final = 50
"""The most images that one transaction deletes."""
_REST: Final = 3
"""The pause after a portion, as a multiple of its duration: on SQLite, pushes need the same writer
and would take many times as long without a pause."""
_LONGEST_REST: Final = 5.0
"""The longest pause, in seconds."""
_CHUNK: Final = 500
_KEPT: Final = 8


class Cursor(msgspec.Struct, frozen=True):
    """The position of a run in its plan."""

    plan: str
    """Id of the plan that `position` belongs to."""
    position: int
    subjects: Sequence[str] = ()
    """Digests of expired or expiring images that have referrers at or after `position`."""


class Plan(NamedTuple):
    """The images that a run will delete."""

    id: str
    moment: int
    """The time from which ages are measured, in microseconds since the epoch."""
    evaluated: int
    """The number of images in the repository."""
    order: Sequence[str]
    """The ids of the expiring images, in an order in which they can be deleted."""
    newest: Mapping[int, Sequence[str]]
    """The ids that each rule's `keep_last` keeps (see `Selection`)."""
    subjects: Mapping[int, Collection[str]]
    """For each position between portions, the subjects before it with referrers after it."""

    def portion(self, position: int) -> Sequence[str]:
        """Return the ids that one transaction deletes from `position` on."""
        return self.order[position : position + PORTION]

    def cursor(self, position: int) -> Cursor:
        """Return the cursor to store when the run has come to `position`."""
        return Cursor(self.id, position, sorted(self.subjects.get(position, ())))


class Plans:
    """The plans of the runs in this process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Plan] = OrderedDict()
        self._handed_over: dict[str, float] = {}

    def find(self, plan_id: str) -> Plan | None:
        """Return a plan that this process has made and still keeps, or None."""
        return self._kept.get(plan_id)

    def keep(self, plan: Plan) -> None:
        """Store a plan; drop the oldest if there are more than 8."""
        self._kept[plan.id] = plan
        if len(self._kept) > _KEPT:
            self.drop(next(iter(self._kept)))

    def drop(self, plan_id: str) -> None:
        """Drop a plan."""
        self._kept.pop(plan_id, None)
        self._handed_over.pop(plan_id, None)

    def hand_over(self, plan_id: str) -> None:
        """Record that a portion is being deleted from now until the next step starts."""
        self._handed_over[plan_id] = time.monotonic()

    async def rest(self, plan_id: str) -> None:
        """Wait after a portion, longer than it took, so that others get the database."""
        begun = self._handed_over.pop(plan_id, None)
        if begun is not None:
            await asyncio.sleep(min(_REST * (time.monotonic() - begun), _LONGEST_REST))


async def divided_subjects(
    database: Database, repository_id: str, selection: Selection, orphaned: Collection[str]
) -> dict[int, set[str]]:
    """Return the digests to store in the cursor at each position between portions.

    `orphaned` are the subjects from the cursor of an earlier plan; they stay until the last
    referrer. Each chunk is a transaction of its own, so that other requests run in between.
    """
    order = list(selection.expired)
    divided = _divided(selection.expired, order)
    ids = sorted({subject for subjects in divided.values() for subject in subjects})
    digests: dict[str, str] = {}
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        digests |= await database.read(digests_of, repository_id, chunk)
    found = {
        position: {digests[each] for each in subjects if each in digests}
        for position, subjects in divided.items()
    }
    followers = [place for place, each in enumerate(order) if selection.expired[each].rule is None]
    if followers:
        for position in range(0, followers[-1] + 1, PORTION):
            found.setdefault(position, set()).update(orphaned)
    return found


def _divided(expired: Mapping[str, Expired], order: Sequence[str]) -> dict[int, set[str]]:
    """Return, by position, the ids of the subjects before it that have referrers after it."""
    last = {}
    for place, name in enumerate(order):
        subject = expired[name].subject
        if subject is not None:
            last[subject] = place
    divided = defaultdict(set)
    for place, name in enumerate(order):
        for position in range((place // PORTION + 1) * PORTION, last.get(name, 0) + 1, PORTION):
            divided[position].add(name)
    return divided
