"""The history of tags: every change of each tag, in order, with its principal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, ScalarSelect, bindparam, func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import (
    ONE,
    ZERO,
    bound,
    columns_of,
    count,
    find_all,
    first,
    given,
    insert_rows,
    value,
)
from cloudcore.db.statement import Statement, listed, page, paged, text_list
from registry.metadata.control_tables import tag_events
from registry.metadata.tables import manifests, tags

_e = tag_events.c
_LAST: Final = 2**62
"""Sorts after every event number."""


class TagEvent(NamedTuple):
    """One change of a tag."""

    sequence: int
    tag: str
    action: str
    """``created``, ``moved``, ``deleted`` or ``restored``."""
    digest: str | None
    """The digest that the tag points to after the change, or None if the tag was deleted."""
    previous_digest: str | None
    """The digest that the tag pointed to before the change, or None if there was no such tag."""
    principal: str
    """The principal's CRN; empty for an unauthenticated client."""
    occurred_at: int
    source: str | None = None
    """A stored `SourceIdentity`; None for an unauthenticated client, and in old rows."""


class NewTagEvent(NamedTuple):
    """A tag change to insert; the `previous_…` fields name the manifest before the change."""

    repository_id: str
    tag: str
    action: str
    digest: str | None
    previous_digest: str | None
    manifest_id: str | None
    previous_manifest_id: str | None
    principal: str
    source: str | None
    occurred_at: int


def _ordinal_of(
    event: str, repository_id: ColumnElement[str], tag: ColumnElement[str]
) -> ScalarSelect[int]:
    """Build a query for the ordinal of a tag's ``newest`` or ``oldest`` event."""
    e = tag_events.alias(event).c
    return first(
        select(e.ordinal)
        .where(e.repository_id == repository_id, e.tag == tag)
        .order_by(e.sequence.desc() if event == "newest" else e.sequence)
    ).scalar_subquery()


def _next_ordinal(repository_id: ColumnElement[str], tag: ColumnElement[str]) -> ColumnElement[int]:
    return func.coalesce(_ordinal_of("newest", repository_id, tag), ZERO) + ONE


_of_tag: Final = (value("repository_id", _e.repository_id), value("tag", _e.tag))
_ADD: Final = Statement(
    tag_events.insert()
    .values(bound(NewTagEvent._fields) | {"ordinal": _next_ordinal(*_of_tag)})
    .inline()
)
_ADD_DELETIONS: Final = Statement(
    insert_rows(
        tag_events,
        select(
            tags.c.repository_id,
            tags.c.name.label("tag"),
            _next_ordinal(tags.c.repository_id, tags.c.name).label("ordinal"),
            literal_column("'deleted'").label("action"),
            manifests.c.digest.label("previous_digest"),
            manifests.c.id.label("previous_manifest_id"),
            value("principal", _e.principal),
            value("source", _e.source),
            value("now", _e.occurred_at).label("occurred_at"),
        )
        .join(manifests, manifests.c.id == tags.c.manifest_id)
        .where(tags.c.manifest_id.in_(listed("ids")))
        .order_by(tags.c.name),
    )
)


_LIST: Final = paged(
    columns_of(tag_events, TagEvent._fields)
    .where(given(_e.repository_id), given(_e.tag), _e.sequence < bindparam("before"))
    .order_by(_e.sequence.desc())
)
_COUNT: Final = Statement(
    select(
        func.coalesce(_ordinal_of("newest", *_of_tag) - _ordinal_of("oldest", *_of_tag) + ONE, ZERO)
    )
)
_OLDEST: Final = paged(
    select(_e.sequence, _e.occurred_at).where(_e.sequence > ZERO).order_by(_e.sequence)
)
_FORGET: Final = Statement(tag_events.delete().where(_e.sequence <= bindparam("last")))
_REMOVE: Final = Statement(
    tag_events.delete().where(
        _e.sequence.in_(
            page(select(_e.sequence).where(given(_e.repository_id)).order_by(_e.sequence))
        )
    )
)


def add_tag_event(tx: Connection, event: NewTagEvent) -> None:
    """Insert an event; the caller holds the repository's lock, which orders events."""
    tx.execute(_ADD, **event._asdict())


def add_deletions(
    tx: Connection, ids: Sequence[str], principal: str, source: str | None, now: int
) -> None:
    """Insert a deletion event for each tag of these manifests."""
    tx.execute(_ADD_DELETIONS, ids=text_list(ids), principal=principal, source=source, now=now)


def list_tag_events(
    tx: Connection, repository_id: str, tag: str, before: int | None, limit: int
) -> list[TagEvent]:
    """Return up to `limit` changes of a tag, newest first, before the event number `before`."""
    return find_all(
        tx,
        TagEvent,
        _LIST,
        repository_id=repository_id,
        tag=tag,
        before=_LAST if before is None else before,
        limit=limit,
    )


def count_tag_events(tx: Connection, repository_id: str, tag: str) -> int:
    """Return the number of recorded changes of a tag, at a constant cost.

    The events of a tag are numbered without gaps, and the oldest are deleted first.
    """
    return count(tx, _COUNT, repository_id=repository_id, tag=tag)


def forget_tag_events(tx: Connection, before: int, limit: int) -> int:
    """Delete up to `limit` of the oldest events, not later than `before`; return how many.

    Events are deleted in the order of their numbers, even where clocks disagreed.
    """
    oldest = tx.rows(_OLDEST, limit=limit)
    expired = [sequence for sequence, _ in takewhile(lambda event: event[1] <= before, oldest)]
    return tx.execute(_FORGET, last=expired[-1]) if expired else 0


def remove_tag_events(tx: Connection, repository_id: str, limit: int) -> int:
    """Delete up to `limit` events of a deleted repository's tags; return their number."""
    return tx.execute(_REMOVE, repository_id=repository_id, limit=limit)
