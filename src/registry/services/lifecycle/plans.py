"""What a run is going to do, in portions, and what it has to remember between them.

A plan lives in the memory of the process that works on it: it can always be made anew, but for
one thing. Referrers go with their subject, and once a portion with the subject is done only the
cursor knows that the rest are to follow. So a cursor names the subjects that portions divide.
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
"""How many images one transaction deletes at most."""
_REST: Final = 3
"""How many times as long as a portion took the next one waits: on SQLite pushes need the same
writer, and while portion follows portion, they take many times as long."""
_LONGEST_REST: Final = 5.0
"""In seconds."""
_CHUNK: Final = 500
_KEPT: Final = 8


class Cursor(msgspec.Struct, frozen=True):
    """Where a run is."""

    plan: str
    """Which plan `position` is of."""
    position: int
    subjects: Sequence[str] = ()
    """Digests that have expired, or were about to, and have referrers at or after `position`."""


class Plan(NamedTuple):
    """What a run is going to do."""

    id: str
    moment: int
    """By which ages are told, in microseconds."""
    evaluated: int
    order: Sequence[str]
    """The ids of what expires, as they can be deleted."""
    newest: Mapping[int, Sequence[str]]
    """What each rule's `keep_last` keeps (see `Selection`)."""
    subjects: Mapping[int, Collection[str]]
    """For each position between portions, the digests that are divided there."""

    def portion(self, position: int) -> Sequence[str]:
        """Return the images that one transaction deletes."""
        return self.order[position : position + PORTION]

    def cursor(self, position: int) -> Cursor:
        """Return what a run remembers when it comes to `position`."""
        return Cursor(self.id, position, sorted(self.subjects.get(position, ())))


class Plans:
    """The plans of the runs this process works on."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Plan] = OrderedDict()
        self._handed_over: dict[str, float] = {}

    def find(self, plan_id: str) -> Plan | None:
        """Return a plan made here."""
        return self._kept.get(plan_id)

    def keep(self, plan: Plan) -> None:
        """Keep a plan, in place of the oldest if there are many."""
        self._kept[plan.id] = plan
        if len(self._kept) > _KEPT:
            self.drop(next(iter(self._kept)))

    def drop(self, plan_id: str) -> None:
        """Forget a plan that is carried out."""
        self._kept.pop(plan_id, None)
        self._handed_over.pop(plan_id, None)

    def hand_over(self, plan_id: str) -> None:
        """Note that a portion is deleted from now until the next step begins."""
        self._handed_over[plan_id] = time.monotonic()

    async def rest(self, plan_id: str) -> None:
        """Let others have the database after a portion, for longer than that had it."""
        begun = self._handed_over.pop(plan_id, None)
        if begun is not None:
            await asyncio.sleep(min(_REST * (time.monotonic() - begun), _LONGEST_REST))


async def divided_subjects(
    database: Database, repository_id: str, selection: Selection, orphaned: Collection[str]
) -> dict[int, set[str]]:
    """Return the digests to remember at each position between portions.

    `orphaned` are those that an earlier plan divided; they stay until their last referrer.
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
    """Return the ids of subjects by the positions that part them from referrers."""
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
