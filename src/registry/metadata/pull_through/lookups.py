"""Stored answers of upstreams: absent references, fresh tags, referrers, lists of tags.

Until a tag's `fresh_until`, the upstream is not asked about the tag. A caller that is about to ask
postpones that time first, so that all other callers use the stored answer meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, or_, select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, columns_of, deletion, find_one, given, insert_or_change
from cloudcore.db.statement import Statement
from registry.metadata.pull_through.tables import (
    cached_referrers,
    upstream_lookups,
    upstream_tag_lists,
)
from registry.metadata.tables import tags

_u = upstream_lookups.c
_KEY: Final = given(_u.rule_id, _u.repository, _u.reference)
_new = insert(upstream_lookups).values(
    **bound(("rule_id", "repository", "reference", "fetching_until", "absent_until", "ends_at"))
)
_ANSWER: Final = {
    name: _new.excluded[name] for name in ("fetching_until", "absent_until", "ends_at")
}
_OF_KEY: Final = ["rule_id", "repository", "reference"]
_BEGIN: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=_OF_KEY,
        set_=_ANSWER,
        where=or_(_u.fetching_until.is_(None), _u.fetching_until <= bindparam("now")),
    )
)
_NOTE: Final = Statement(_new.on_conflict_do_update(index_elements=_OF_KEY, set_=_ANSWER))
_IS_ABSENT: Final = Statement(
    select(text("1")).select_from(upstream_lookups).where(_KEY, _u.absent_until > bindparam("now"))
)
_RENEW: Final = Statement(
    upstream_lookups.update()
    .where(_KEY, _u.fetching_until.is_not(None))
    .values(fetching_until=bindparam("until"), ends_at=bindparam("until"))
)
_END: Final = Statement(upstream_lookups.delete().where(_KEY))
_FORGET_ABSENT: Final = Statement(
    upstream_lookups.delete().where(given(_u.rule_id), _u.absent_until.is_not(None))
)
forget_lookups: Final = deletion(_u.ends_at)
"""Delete expired claims and records of absence."""


def begin_fetch(
    tx: Connection, rule_id: str, repository: str, reference: str, now: int, until: int
) -> bool:
    """Claim the fetch of a reference until a time; return False if another process has claimed it.

    If the process dies, its claim ends at that time.
    """
    of = {"rule_id": rule_id, "repository": repository, "reference": reference}
    claim = {"fetching_until": until, "absent_until": None, "ends_at": until}
    return tx.execute(_BEGIN, **of, **claim, now=now) == 1


def renew_fetch(tx: Connection, rule_id: str, repository: str, reference: str, until: int) -> None:
    """Extend the claim of a reference to a later time; do nothing if there is no claim."""
    of = {"rule_id": rule_id, "repository": repository, "reference": reference}
    tx.execute(_RENEW, **of, until=until)


def end_fetch(tx: Connection, rule_id: str, repository: str, reference: str) -> None:
    """Delete the claim of a reference."""
    tx.execute(_END, rule_id=rule_id, repository=repository, reference=reference)


def note_absence(tx: Connection, rule_id: str, repository: str, reference: str, until: int) -> None:
    """Record that an upstream lacks a reference, and end the claim to fetch the reference.

    The record expires at `until`.
    """
    of = {"rule_id": rule_id, "repository": repository, "reference": reference}
    tx.execute(_NOTE, **of, fetching_until=None, absent_until=until, ends_at=until)


def is_absent(tx: Connection, rule_id: str, repository: str, reference: str, now: int) -> bool:
    """Return True if an unexpired record says that the upstream lacks a reference."""
    of = {"rule_id": rule_id, "repository": repository, "reference": reference}
    return tx.row(_IS_ABSENT, **of, now=now) is not None


def forget_absences(tx: Connection, rule_id: str) -> None:
    """Delete the recorded absences of a rule's upstream."""
    tx.execute(_FORGET_ABSENT, rule_id=rule_id)


_t = tags.c
_TAG_KEY: Final = (_t.repository_id == bindparam("of"), _t.name == bindparam("tag"))
_CACHED: Final = (*_TAG_KEY, _t.fresh_until.is_not(None))
"""Only tags of the cache match, not one that was pushed after the rule was deleted."""


class LastAnswer(NamedTuple):
    """The upstream's last answer about a tag."""

    pushed_digest: str
    etag: str | None


_CLAIM: Final = Statement(
    tags.update()
    .where(*_TAG_KEY, _t.fresh_until == bindparam("seen"))
    .values(fresh_until=bindparam("until"))
)
_RENEW_TAG: Final = Statement(
    tags.update()
    .where(*_CACHED)
    .values(
        fresh_until=bindparam("until"),
        stale_since=text("NULL"),
        checked_at=bindparam("now"),
        upstream_etag=bindparam("etag"),
    )
)
_STALE: Final = Statement(
    tags.update()
    .where(*_CACHED)
    .values(
        fresh_until=bindparam("until"),
        stale_since=func.coalesce(_t.stale_since, _t.checked_at, _t.updated_at),
    )
    .returning(_t.stale_since)
)
_LAST: Final = Statement(select(_t.pushed_digest, _t.upstream_etag).where(*_TAG_KEY))


def claim_check(tx: Connection, repository_id: str, tag: str, seen: int, until: int) -> bool:
    """Claim the next check of a tag; return False if `fresh_until` is no longer `seen`.

    In that case another process has claimed the check, or has made it.
    """
    return tx.execute(_CLAIM, of=repository_id, tag=tag, seen=seen, until=until) == 1


def last_answer(tx: Connection, repository_id: str, tag: str) -> LastAnswer | None:
    """Return the upstream's last answer about a tag; None if the tag does not exist."""
    return find_one(tx, LastAnswer, _LAST, of=repository_id, tag=tag)


def renew(
    tx: Connection, repository_id: str, tag: str, now: int, until: int, etag: str | None
) -> None:
    """Record that the upstream confirmed a cached tag, with this ETag; it is fresh until `until`.

    Do nothing if there is no such cached tag.
    """
    tx.execute(_RENEW_TAG, of=repository_id, tag=tag, now=now, until=until, etag=etag)


def mark_stale(tx: Connection, repository_id: str, tag: str, until: int) -> int | None:
    """Mark a tag as stale: the upstream could not be asked, and is not asked again before `until`.

    Return when the upstream last confirmed the tag, or None if there is no such cached tag.
    """
    row = tx.row(_STALE, of=repository_id, tag=tag, until=until)
    return int(row[0]) if row else None


_c = cached_referrers.c
_KEPT_SECONDS: Final = 7 * 24 * 3600
"""How long an answer is kept after it is no longer fresh, in case the upstream is down."""


class CachedReferrers(NamedTuple):
    """An index of referrers as the upstream sent it."""

    body: bytes
    checked_at: int
    fresh_until: int


_FIND: Final = Statement(
    select(_c.body, _c.checked_at, _c.fresh_until).where(given(_c.repository_id, _c.subject))
)
_PUT: Final = Statement(
    insert_or_change(cached_referrers, ("repository_id", "subject", *CachedReferrers._fields))
)
forget_referrers: Final = deletion(_c.fresh_until, kept_seconds=_KEPT_SECONDS)
"""Delete indexes of referrers that have not been fresh for `_KEPT_SECONDS`."""


def find_referrers(tx: Connection, repository_id: str, subject: str) -> CachedReferrers | None:
    """Return the stored index of the referrers of a digest, or None."""
    return find_one(tx, CachedReferrers, _FIND, repository_id=repository_id, subject=subject)


def put_referrers(tx: Connection, repository_id: str, subject: str, new: CachedReferrers) -> None:
    """Insert or replace an index of referrers; the caller has locked the repository."""
    tx.execute(_PUT, repository_id=repository_id, subject=subject, **new._asdict())


MAX_BYTES_OF_RULE: Final = 16 * 1024 * 1024
"""The maximum size of the lists of tags kept for a rule, in bytes; the newest lists are kept."""
_lists = upstream_tag_lists.c


class KeptTags(NamedTuple):
    """An upstream's list of a repository's tags, as stored."""

    names: bytes
    """The tags in byte order, one per line."""
    is_whole: bool
    """False if the upstream has more tags than `names`."""
    checked_at: int
    fresh_until: int

    def after(self, last: str, limit: int) -> list[str]:
        """Return up to `limit` names that sort after `last`."""
        names = self.names.decode().split("\n") if self.names else []
        begin = bisect_right(names, last)
        return names[begin : begin + limit]


_OF_NAME: Final = given(_lists.rule_id, _lists.repository)
_FIND_TAGS: Final = Statement(columns_of(upstream_tag_lists, KeptTags._fields).where(_OF_NAME))
_SIZES: Final = Statement(
    select(_lists.repository, func.length(_lists.names))
    .where(given(_lists.rule_id))
    .order_by(_lists.checked_at.desc(), _lists.repository)
)
_KEEP_TAGS: Final = Statement(
    insert_or_change(upstream_tag_lists, ("rule_id", "repository", *KeptTags._fields))
)
_REMOVE: Final = Statement(upstream_tag_lists.delete().where(_OF_NAME))
_REMOVE_ALL: Final = Statement(upstream_tag_lists.delete().where(given(_lists.rule_id)))
forget_tags: Final = deletion(_lists.fresh_until, kept_seconds=_KEPT_SECONDS)
"""Delete lists of tags that have not been fresh for `_KEPT_SECONDS`."""
_ROW_BYTES: Final = 512
"""The approximate size of a list without its names, in bytes."""


def find_tags(tx: Connection, rule_id: str, repository: str) -> KeptTags | None:
    """Return the stored list of tags of a repository under a rule, or None."""
    row = tx.row(_FIND_TAGS, rule_id=rule_id, repository=repository)
    return KeptTags(*row)._replace(is_whole=bool(row[1])) if row else None


def keep_tags(tx: Connection, rule_id: str, repository: str, new: KeptTags) -> None:
    """Insert or replace a list of tags.

    If the lists of the rule together exceed `MAX_BYTES_OF_RULE`, the oldest are deleted.
    """
    tx.execute(_KEEP_TAGS, rule_id=rule_id, repository=repository, **new._asdict())
    total = 0
    for name, size in tx.rows(_SIZES, rule_id=rule_id):
        total += size + _ROW_BYTES
        if total > MAX_BYTES_OF_RULE:
            tx.execute(_REMOVE, rule_id=rule_id, repository=name)


def remove_tags(tx: Connection, rule_id: str, repository: str) -> None:
    """Delete the stored list of tags of a repository."""
    tx.execute(_REMOVE, rule_id=rule_id, repository=repository)


def remove_lists(tx: Connection, rule_id: str) -> None:
    """Delete the stored lists of tags of all repositories of a rule."""
    tx.execute(_REMOVE_ALL, rule_id=rule_id)
