"""What became of each tag, in the order in which it happened, with who did it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, func, select, text

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
                "manifest_id",
                "previous_manifest_id",
                "principal",
                "occurred_at",
            )
        }
    )
    .inline()
)
_ADD_DELETIONS: Final = Statement(
    tag_events.insert().from_select(
        [
            "repository_id",
            "tag",
            "action",
            "previous_digest",
            "previous_manifest_id",
            "principal",
            "occurred_at",
        ],
        select(
            tags.c.repository_id,
            tags.c.name,
            text("'deleted'"),
            manifests.c.digest,
            manifests.c.id,
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
    manifest_id: str | None,
    previous_manifest_id: str | None,
    principal: str,
    now: int,
) -> None:
    """Record what became of a tag; the caller holds the repository's lock, which orders events.

    Digests and ids are of what it points to now, and of what it pointed to before.
    """
    tx.execute(
        _ADD,
        repository_id=repository_id,
        tag=tag,
        action=action,
        digest=digest,
        previous_digest=previous_digest,
        manifest_id=manifest_id,
        previous_manifest_id=previous_manifest_id,
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


def count_tag_events(tx: Connection, repository_id: str, tag: str) -> int:
    """Return how many changes of a tag there are to tell of."""
    row = tx.row(_COUNT, repository_id=repository_id, tag=tag)
    assert row is not None
    return int(row[0])


def forget_tag_events(tx: Connection, before: int, limit: int) -> int:
    """Delete up to `limit` of the events that happened before a moment; return how many."""
    return tx.execute(_FORGET, before=before, limit=limit)
