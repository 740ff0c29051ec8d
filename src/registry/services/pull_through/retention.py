"""Delete cached images that nobody pulls, by age and by the total size that a rule has cached.

Such images cannot be restored, as the upstream still has them. The collector deletes their bytes
later. Otherwise cached images are deleted only by users and by lifecycle policies.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from cloudcore.audit.rows import add_event
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.iam.audit import AuditEvent
from registry.metadata.images.manifests import find_manifests
from registry.metadata.pull_through import cached_images as rows
from registry.metadata.pull_through.cache_rule import CACHE_RULE
from registry.metadata.pull_through.cached_images import CachedImage, Retention
from registry.metadata.repositories.daily_usage import DAY
from registry.metadata.repositories.repository import lock_repository
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.events import publish
from registry.services.images.deletion import drop_unlisted

EVERY_SECONDS: Final = 900
_BATCH: Final = 500
_MOST_A_TURN: Final = 2000
"""The maximum number of images that one turn deletes for a rule; the next turn continues."""
_JUST_PULLED: Final = 3600 * MICROSECONDS
"""Microseconds for which a pulled image is kept even if the cache is too large: it is in use."""


async def expire_cached_images(ctx: ServiceContext) -> int:
    """Delete the images beyond the rules' limits; return their number.

    Each image is deleted in its own transaction, which checks again that it is beyond the limits.
    """
    dropped = 0
    for rule in await ctx.database.read(rows.list_retentions):
        now = ctx.clock()
        of_rule = 0
        if rule.keep_unpulled_days is not None:
            of_rule += await _drop_before(ctx, rule, now - rule.keep_unpulled_days * DAY)
        if rule.max_bytes is not None:
            of_rule += await _drop_before(ctx, rule, now - _JUST_PULLED, down_to=rule.max_bytes)
        if of_rule and ctx.audits:
            await ctx.database.write(partial(_record, ctx, rule, of_rule))
        dropped += of_rule
    return dropped


class _Excess(NamedTuple):
    """How many bytes a rule has cached beyond its `max_bytes`."""

    summed: int
    """The excess when the rule's cached bytes were last summed."""
    left: int
    """The excess without the bytes that were deleted since."""

    @property
    def is_stale(self) -> bool:
        """Return True if at least half of the excess is deleted; then the bytes are summed again.

        Other transactions may delete images meanwhile, so the last deletions of a run need a recent
        sum. Halving keeps the number of sums small, however many images a run deletes.
        """
        return 2 * self.left <= self.summed


async def _drop_before(
    ctx: ServiceContext, rule: Retention, before: int, *, down_to: int | None = None
) -> int:
    """Delete images last used before `before`, oldest first; return their number.

    With `down_to`, stop when the rule has cached at most this many bytes.
    """
    change = ctx.change_by(CACHE_RULE.crn(rule.region, rule.account_id, rule.prefix))
    dropped = 0
    excess: _Excess | None = None
    while dropped < _MOST_A_TURN:
        if down_to is not None:
            excess = await ctx.database.read(_sum, rule, down_to)
            if excess.left <= 0:
                break
        found = await ctx.database.read(rows.oldest_images, rule, before, change.now, _BATCH)
        gone = 0
        for image in found:
            is_gone, excess = await ctx.database.write(_drop, rule, image, before, excess, change)
            gone += is_gone
            if excess is not None and excess.left <= 0:
                break
        dropped += gone
        if not gone:
            break
    return dropped


def _drop(
    tx: Connection,
    rule: Retention,
    image: CachedImage,
    before: int,
    excess: _Excess | None,
    change: Change,
) -> tuple[bool, _Excess | None]:
    """Delete an image unless the rule keeps it; return True if deleted, and the excess left."""
    repository = lock_repository(tx, image.repository_id)
    if repository is None or rows.find_retention(tx, rule.rule_id) != rule:
        return False, excess
    if excess is not None and excess.is_stale:
        assert rule.max_bytes is not None
        excess = _sum(tx, rule, rule.max_bytes)
        if excess.left <= 0:
            return False, excess
    if not rows.is_still_unneeded(tx, image, before, change.now):
        return False, excess
    size = rows.repository_bytes(tx, repository.id) if excess is not None else 0
    found = find_manifests(tx, repository.id, [image.digest])
    events = drop_unlisted(tx, repository, list(found.values()), change, is_restorable=False)
    publish(tx, change, repository, events)
    if excess is not None:
        freed = size - rows.repository_bytes(tx, repository.id)
        excess = excess._replace(left=excess.left - freed)
    return True, excess


def _sum(tx: Connection, rule: Retention, down_to: int) -> _Excess:
    excess = rows.cached_bytes(tx, rule) - down_to
    return _Excess(excess, excess)


def _record(ctx: ServiceContext, rule: Retention, dropped: int, tx: Connection) -> None:
    crn, now = CACHE_RULE.crn(rule.region, rule.account_id, rule.prefix), ctx.clock()
    event = AuditEvent(
        id=uuid7(now),
        owner_id=rule.account_id,
        occurred_at=now,
        action="registry:ExpireCachedImages",
        resources=(crn,),
        principal=crn,
        source=None,
        client=None,
        details={"expired": dropped},
    )
    add_event(tx, event)
