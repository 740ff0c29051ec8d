"""What a run would do now: which images go, by which rule, and what that frees. Deletes nothing."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection, Database
from registry.metadata.lifecycle import images as rows
from registry.metadata.lifecycle.images import ShownImage
from registry.services.lifecycle.freed import freed_bytes
from registry.services.lifecycle.rules import LifecyclePolicy, policy_of
from registry.services.lifecycle.scan import read_all
from registry.services.lifecycle.selection import Expired, Selection, select

_KEPT: Final = 2
_KEPT_FOR: Final = 300 * MICROSECONDS


class Preview(NamedTuple):
    """What a policy would take at a moment."""

    moment: int
    """Microseconds."""
    evaluated: int
    expired: dict[str, Expired]
    ids: list[str]
    """Of what expires, the newest first."""
    expired_by_rule: dict[int, int]
    """By the rules' priorities."""
    kept_by_rule: dict[int, int]
    """What keep rules protect, and `keep_last` leaves, by the rules' priorities."""
    freed_bytes: int
    """Of blobs that nothing would reference any more, once nothing can be restored."""


class Taken(NamedTuple):
    """An image that would expire."""

    image: ShownImage
    tags: list[str]
    priority: int
    """Of the rule that takes it, or the image it goes with."""
    expires_with: str | None
    """The digest of that image."""


class Previews:
    """Makes previews, few at a time, and keeps the last ones for those who turn their pages."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Preview] = OrderedDict()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    async def get(self, database: Database, repository_id: str, document: str, now: int) -> Preview:
        """Return the preview of a policy's document as of `now`.

        One of the same moment is not made again; if it is not kept here any more, or was made by
        another process, what is returned shows the present images by the rules of then.
        """
        key = (repository_id, document, now)
        found = self._kept.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            async with self._turns.setdefault(loop, asyncio.Semaphore()):
                found = await preview(database, repository_id, policy_of(document), now)
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, str, int], found: Preview) -> None:
        self._kept[key] = found
        outdated = [each for each in self._kept if each[2] <= key[2] - _KEPT_FOR]
        surplus = list(self._kept)[:-_KEPT]
        for each in {*outdated, *surplus}:
            del self._kept[each]


async def preview(
    database: Database, repository_id: str, policy: LifecyclePolicy, now: int
) -> Preview:
    """Return what a policy would take of a repository."""
    images, children = await read_all(database, repository_id, policy, now)
    selection = await asyncio.to_thread(select, policy, images, children, now)
    expired = selection.expired
    return Preview(
        moment=now,
        evaluated=len(images),
        expired=expired,
        ids=sorted(expired, reverse=True),
        expired_by_rule=_expired_by_rule(policy, selection),
        kept_by_rule={policy.rules[n].priority: count for n, count in selection.kept.items()},
        freed_bytes=await freed_bytes(database, repository_id, list(expired), len(images)),
    )


def read_taken(
    tx: Connection, repository_id: str, policy: LifecyclePolicy, found: Preview, ids: Sequence[str]
) -> list[Taken]:
    """Return those of `ids`, of a preview, that are still there."""
    shown = rows.shown_images(tx, repository_id, ids)
    tags: dict[str, list[str]] = {}
    for name, image, _ in sorted(rows.tags_of_some(tx, repository_id, ids)):
        tags.setdefault(image, []).append(name)
    subjects = [subject for each in ids if (subject := found.expired[each].subject) is not None]
    digests = rows.digests_of(tx, repository_id, subjects)
    taken = []
    for each in ids:
        if each in shown:
            rule, subject = found.expired[each]
            assert rule is not None
            taken.append(
                Taken(
                    shown[each],
                    tags.get(each, []),
                    policy.rules[rule].priority,
                    None if subject is None else shown[each].subject_digest or digests.get(subject),
                )
            )
    return taken


def _expired_by_rule(policy: LifecyclePolicy, selection: Selection) -> dict[int, int]:
    counts = Counter(each.rule for each in selection.expired.values())
    return {policy.rules[n].priority: count for n, count in counts.items() if n is not None}
