"""What became of each tag, in the order in which it happened, with who did it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Exists, Select, bindparam, func, literal_column, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, page
from registry.metadata.control_tables import tag_events
from registry.metadata.tables import manifests, tags

_e = tag_events.c
_LAST: Final = 2**62
"""Sorts after every number of an event."""


class TagEvent(NamedTuple):
    """One change of a tag."""

    sequence: int
    tag: str
    action: str
    """``created``, ``moved``, ``deleted`` or ``restored``."""
    digest: str | None
    """What it points to since; None: it is gone."""
    previous_digest: str | None
    """What it pointed to before; None: it was not there."""
    principal: str
    """CRN; empty when nobody had signed in."""
    occurred_at: int


_ADD: Final = Statement(
    tag_events.insert()
    .values(
        {
            name: bindparam(name)
            for name in (
                "repository_id",
                "tag",
                "action",
                "digest",
                "previous_digest",
                "principal",
                "occurred_at",
            )
        }
    )
    .inline()
)
_ADD_DELETIONS: Final = Statement(
    tag_events.insert().from_select(
        ["repository_id", "tag", "action", "previous_digest", "principal", "occurred_at"],
        select(
            tags.c.repository_id,
            tags.c.name,
            text("'deleted'"),
            manifests.c.digest,
            bindparam("principal", type_=_e.principal.type),
            bindparam("now", type_=_e.occurred_at.type),
        )
        .join(manifests, manifests.c.id == tags.c.manifest_id)
        .where(tags.c.manifest_id == bindparam("manifest_id"))
        .order_by(tags.c.name),
    )
)


def _columns() -> Select[Any]:
    return select(*(_e[name] for name in TagEvent._fields)).where(
        _e.repository_id == bindparam("repository_id")
    )


_LIST: Final = Statement(
    page(
        _columns()
        .where(_e.tag == bindparam("tag"), _e.sequence < bindparam("before"))
        .order_by(_e.sequence.desc())
    )
)
_COUNT: Final = Statement(
    select(func.count())
    .select_from(tag_events)
    .where(_e.repository_id == bindparam("repository_id"), _e.tag == bindparam("tag"))
)
_later = tag_events.alias("later")
_same = tags.alias("same")


def _deleted(query: Select[Any]) -> Select[Any]:
    """Keep the last deletion of each tag that is gone while its image is there."""
    image = (manifests.c.repository_id == _e.repository_id) & (
        manifests.c.digest == _e.previous_digest
    )
    tag = (_same.c.repository_id == _e.repository_id) & (_same.c.name == _e.tag)
    change = (
        (_later.c.repository_id == _e.repository_id)
        & (_later.c.tag == _e.tag)
        & (_later.c.sequence > _e.sequence)
    )
    return query.where(
        _e.action == text("'deleted'"),  # names the partial index
        _e.repository_id == bindparam("repository_id"),
        _e.occurred_at > bindparam("since"),
        _is_any(image),
        ~_is_any(tag),
        ~_is_any(change),
    )


def _is_any(condition: ColumnElement[bool]) -> Exists:
    # Without an offset PostgreSQL may join all images, and sort, to list a few tags.
    one: ColumnElement[int] = literal_column("1")
    return select(one).where(condition).limit(one).offset(literal_column("0")).exists()


_LIST_DELETED: Final = Statement(
    page(_deleted(_columns()).where(_e.sequence < bindparam("before")).order_by(_e.sequence.desc()))
)
_COUNT_DELETED: Final = Statement(_deleted(select(func.count()).select_from(tag_events)))
_FORGET: Final = Statement(
    tag_events.delete().where(
        _e.sequence.in_(
            page(
                select(_e.sequence)
                .where(_e.occurred_at <= bindparam("before"))
                .order_by(_e.occurred_at)
            )
        )
    )
)


def add_tag_event(
    tx: Connection,
    repository_id: str,
    tag: str,
    *,
    action: str,
    digest: str | None,
    previous_digest: str | None,
    principal: str,
    now: int,
) -> None:
    """Record what became of a tag; the caller holds the repository's lock, which orders events."""
    tx.execute(
        _ADD,
        repository_id=repository_id,
        tag=tag,
        action=action,
        digest=digest,
        previous_digest=previous_digest,
        principal=principal,
        occurred_at=now,
    )


def add_deletions(tx: Connection, manifest_id: str, principal: str, now: int) -> None:
    """Record that every tag of a manifest goes with it."""
    tx.execute(_ADD_DELETIONS, manifest_id=manifest_id, principal=principal, now=now)


def list_tag_events(
    tx: Connection, repository_id: str, tag: str, before: int | None, limit: int
) -> list[TagEvent]:
    """Return up to `limit` changes of a tag, newest first, before the event of number `before`."""
    rows = tx.rows(
        _LIST,
        repository_id=repository_id,
        tag=tag,
        before=_LAST if before is None else before,
        limit=limit,
    )
    return [TagEvent(*row) for row in rows]


def list_deleted_tags(
    tx: Connection, repository_id: str, since: int, before: int | None, limit: int
) -> list[TagEvent]:
    """Return deletions after `since` of tags that are gone while their image is there.

    Newest first, before the event of number `before`.
    """
    rows = tx.rows(
        _LIST_DELETED,
        repository_id=repository_id,
        since=since,
        before=_LAST if before is None else before,
        limit=limit,
    )
    return [TagEvent(*row) for row in rows]


def count_tag_events(tx: Connection, repository_id: str, tag: str) -> int:
    """Return how many changes of a tag there are to tell of."""
    row = tx.row(_COUNT, repository_id=repository_id, tag=tag)
    assert row is not None
    return int(row[0])


def count_deleted_tags(tx: Connection, repository_id: str, since: int) -> int:
    """Return how many tags `list_deleted_tags` has to list."""
    row = tx.row(_COUNT_DELETED, repository_id=repository_id, since=since)
    assert row is not None
    return int(row[0])


def forget_tag_events(tx: Connection, before: int, limit: int) -> int:
    """Delete up to `limit` of the events that happened before a moment; return how many."""
    return tx.execute(_FORGET, before=before, limit=limit)
