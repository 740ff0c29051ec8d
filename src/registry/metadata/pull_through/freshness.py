"""How fresh the tags of cached repositories are: when they were looked at, and until when they are.

`fresh_until` says until when the upstream is not asked. It is moved ahead before it is asked, so
that one caller asks and all others have the old answer meanwhile.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.metadata.tables import tags

_t = tags.c
_KEY: Final = (_t.repository_id == bindparam("of"), _t.name == bindparam("tag"))
_CACHED: Final = (*_KEY, _t.fresh_until.is_not(None))
"""A tag that was pushed after a rule was deleted stays as it is."""


class LastLook(NamedTuple):
    """What the upstream told of a tag when it was last asked."""

    pushed_digest: str
    etag: str | None


_CLAIM: Final = Statement(
    tags.update()
    .where(*_KEY, _t.fresh_until == bindparam("seen"))
    .values(fresh_until=bindparam("until"))
)
_RENEW: Final = Statement(
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
_LAST: Final = Statement(select(_t.pushed_digest, _t.upstream_etag).where(*_KEY))


def claim_look(tx: Connection, repository_id: str, tag: str, seen: int, until: int) -> bool:
    """Put off the next look at a tag; return False if another one has, since `seen` was read."""
    return tx.execute(_CLAIM, of=repository_id, tag=tag, seen=seen, until=until) == 1


def last_look(tx: Connection, repository_id: str, tag: str) -> LastLook | None:
    """Return what the upstream told last of a tag, or None if there is no such tag."""
    row = tx.row(_LAST, of=repository_id, tag=tag)
    return LastLook(*row) if row else None


def renew(
    tx: Connection, repository_id: str, tag: str, now: int, until: int, etag: str | None
) -> None:
    """Record that a tag is what the upstream has now, and is taken for that until some moment."""
    tx.execute(_RENEW, of=repository_id, tag=tag, now=now, until=until, etag=etag)


def stay_stale(tx: Connection, repository_id: str, tag: str, until: int) -> int | None:
    """Record that the upstream could not be asked, and is asked again after some moment.

    Return when it last confirmed the tag, or None if there is no such tag of an upstream.
    """
    row = tx.row(_STALE, of=repository_id, tag=tag, until=until)
    return int(row[0]) if row else None
