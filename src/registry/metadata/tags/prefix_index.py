"""The images with a tag that begins with a prefix: all images, or only the changes since an event.

Each query is one statement, so that it reads one state of the database.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, find_one, first, given, value
from cloudcore.db.statement import Statement, paged
from registry.metadata.control_tables import tag_events
from registry.metadata.tables import LAST_CHARACTER, tags

_t = tags.c
_e = tag_events.c

MAX_CHANGES: Final = 500


class Position(NamedTuple):
    """An event in the history of a repository's tags.

    SQLite numbers events from the highest number in the table, so a number may be reused after all
    events were deleted; the time then distinguishes the two events.
    """

    sequence: int
    occurred_at: int


class PointedImage(NamedTuple):
    """The image that a tag pointed to, before or after an event."""

    image_id: str
    has_tag: bool
    """True if the image has a tag with the prefix now."""


class PrefixChange(NamedTuple):
    """An event of a tag, with the images it pointed to before and after; None if there was none."""

    position: Position
    tag: str
    before: PointedImage | None
    after: PointedImage | None


_in_range = (_t.name >= sa.bindparam("first"), _t.name <= sa.bindparam("last"))


def _has_tag(manifest_id: sa.Column[Any]) -> sa.Exists:
    one: sa.ColumnElement[int] = ONE
    return (
        sa.select(one)
        .where(_t.manifest_id == manifest_id, *_in_range)
        # Look up the tags of each image; without a limit the planner may join all tags.
        .limit(one)
        .offset(ZERO)
        .exists()
    )


_CHANGES: Final = paged(
    sa.select(
        _e.sequence,
        _e.occurred_at,
        _e.tag,
        _e.previous_manifest_id,
        _has_tag(_e.previous_manifest_id),
        _e.manifest_id,
        _has_tag(_e.manifest_id),
    )
    .where(given(_e.repository_id), _e.sequence >= sa.bindparam("since"))
    .order_by(_e.sequence)
)
# A position in the index on (repository_id, sequence). With a plain condition on the repository,
# PostgreSQL may scan the events of all repositories backwards to the last one of this.
_end = sa.tuple_(value("repository_id", _e.repository_id), sa.literal_column(str(2**62)))
_last = first(
    sa.select(_e.repository_id, _e.sequence, _e.occurred_at)
    .where(sa.tuple_(_e.repository_id, _e.sequence) < _end)
    .order_by(_e.repository_id.desc(), _e.sequence.desc())
).subquery("last")
_LAST: Final = Statement(
    sa.select(_last.c.sequence, _last.c.occurred_at).where(given(_last.c.repository_id))
)
_ALL: Final = Statement(
    sa.union_all(
        sa.select(sa.literal_column("NULL"), _last.c.sequence, _last.c.occurred_at).where(
            given(_last.c.repository_id)
        ),
        sa.select(_t.manifest_id, sa.literal_column("NULL"), sa.literal_column("NULL")).where(
            given(_t.repository_id), *_in_range
        ),
    )
)


def find_position(tx: Connection, repository_id: str) -> Position | None:
    """Return the last event of the repository's tags, or None if there is none."""
    return find_one(tx, Position, _LAST, repository_id=repository_id)


def find_tagged_images(
    tx: Connection, repository_id: str, prefix: str
) -> tuple[list[str], Position | None]:
    """Return image ids, one for each tag with a prefix, and the repository's last tag event.

    The cost grows with the number of these tags.
    """
    rows = tx.rows(_ALL, repository_id=repository_id, first=prefix, last=prefix + LAST_CHARACTER)
    last = next((Position(row[1], row[2]) for row in rows if row[0] is None), None)
    return [row[0] for row in rows if row[0] is not None], last


def list_changes(tx: Connection, repository_id: str, prefix: str, since: int) -> list[PrefixChange]:
    """Return up to `MAX_CHANGES` events from the number `since` on, in order.

    The events are those of all tags; `prefix` only decides `PointedImage.has_tag`.
    """
    rows = tx.rows(
        _CHANGES,
        repository_id=repository_id,
        first=prefix,
        last=prefix + LAST_CHARACTER,
        since=since,
        limit=MAX_CHANGES,
    )
    return [
        PrefixChange(Position(row[0], row[1]), row[2], _pointed(*row[3:5]), _pointed(*row[5:7]))
        for row in rows
    ]


def _pointed(image_id: str | None, has_tag: object) -> PointedImage | None:
    return None if image_id is None else PointedImage(image_id, bool(has_tag))
