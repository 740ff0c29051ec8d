"""Tags as the control plane shows them: with their manifest, and their times."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, page_planned_once, unseen
from registry.metadata.tables import manifests, tags

_t = tags.c
_END: Final = "\x7f"
"""Sorts after every character of a tag."""


class TagDetails(NamedTuple):
    """A tag with its manifest and its times."""

    name: str
    digest: str
    """The sha256 of its manifest."""
    manifest_id: str
    created_at: int
    updated_at: int


def _columns() -> Select[Any]:
    return (
        select(_t.name, manifests.c.digest, _t.manifest_id, _t.created_at, _t.updated_at)
        .join(manifests, manifests.c.id == _t.manifest_id)
        .where(_t.repository_id == unseen("repository_id", _t.repository_id.type))
    )


_in_range = (
    _t.name >= unseen("first", _t.name.type),
    _t.name <= unseen("last", _t.name.type),
)
_FIND: Final = Statement(_columns().where(_t.name == bindparam("name")))
_LIST: Final = Statement(page_planned_once(_columns().where(*_in_range).order_by(_t.name)))


def find_tag_details(tx: Connection, repository_id: str, name: str) -> TagDetails | None:
    """Return a tag, or None."""
    row = tx.row(_FIND, repository_id=repository_id, name=name)
    return TagDetails(*row) if row else None


def list_tag_details(
    tx: Connection, repository_id: str, prefix: str, after: str, limit: int
) -> list[TagDetails]:
    """Return up to `limit` tags with a prefix after the tag `after`, in byte order."""
    # One lower bound, so that the index range begins where the page does. No tag sorts between
    # `after` and `after` followed by a control character.
    first = after + "\x01" if after else prefix
    rows = tx.rows(_LIST, repository_id=repository_id, first=first, last=prefix + _END, limit=limit)
    return [TagDetails(*row) for row in rows]
