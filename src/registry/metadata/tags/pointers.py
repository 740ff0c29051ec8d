"""Tags: find, put, remove and list them, for ``/v2`` and for the control plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, exists, select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, find_all, find_one, given
from cloudcore.db.statement import Statement, listed, page_planned_once, text_list, unseen
from registry.metadata.control_tables import deleted_tags
from registry.metadata.repositories.repository import (
    ID_OF_NAMED,
    PULL_THROUGH_CACHE,
    find_repository,
    of_named,
)
from registry.metadata.tables import LAST_CHARACTER, manifests, repositories, tags

_t = tags.c
_FIND: Final = Statement(
    select(_t.name, _t.manifest_id, manifests.c.digest, _t.pushed_digest)
    .join(manifests, manifests.c.id == _t.manifest_id)
    .where(given(_t.repository_id, _t.name))
)
_PUT: Final = Statement(
    (
        _inserted := insert(tags).values(
            **bound(("repository_id", "name", "manifest_id", "pushed_digest", "created_at")),
            updated_at=bindparam("now"),
            fresh_until=bindparam("fresh_until"),
        )
    )
    .on_conflict_do_update(
        index_elements=["repository_id", "name"],
        set_={
            "manifest_id": _inserted.excluded.manifest_id,
            "pushed_digest": _inserted.excluded.pushed_digest,
            "updated_at": _inserted.excluded.updated_at,
            "fresh_until": _inserted.excluded.fresh_until,
            "stale_since": text("NULL"),
            "checked_at": text("NULL"),
            "upstream_etag": text("NULL"),
        },
    )
    .returning(exists().where(given(deleted_tags.c.repository_id, deleted_tags.c.name)))
)
_SET_PUSHED_DIGEST: Final = Statement(
    tags.update()
    .where(given(_t.repository_id, _t.name))
    .values(pushed_digest=bindparam("pushed_digest"))
)
_REMOVE: Final = Statement(tags.delete().where(given(_t.repository_id, _t.name)))
_OF_MANIFESTS: Final = Statement(
    select(_t.manifest_id, _t.name, _t.pushed_digest).where(_t.manifest_id.in_(listed("ids")))
)


class Tag(NamedTuple):
    """A tag and its manifest."""

    name: str
    manifest_id: str
    digest: str
    pushed_digest: str


_LIST: Final = Statement(
    page_planned_once(
        # The source is found once for all rows.
        select(_t.name, of_named(repositories.c.source).scalar_subquery())
        .where(
            # No join: PostgreSQL would sort all the tags behind it.
            _t.repository_id == ID_OF_NAMED,
            _t.name > unseen("after", _t.name.type),
        )
        .order_by(_t.name)
    )
)


def find_tag(tx: Connection, repository_id: str, name: str) -> Tag | None:
    """Return a tag of a repository, or None."""
    return find_one(tx, Tag, _FIND, repository_id=repository_id, name=name)


def upsert_tag(
    tx: Connection,
    repository_id: str,
    name: str,
    manifest_id: str,
    pushed_digest: str,
    now: int,
    fresh_until: int | None = None,
    created_at: int | None = None,
) -> bool:
    """Insert or move a tag; return True if there is a deleted tag of the same name.

    A new tag gets `created_at`, by default `now`. Only tags of the pull-through cache have a
    `fresh_until`: the time before which the upstream need not be asked again.
    """
    row = tx.row(
        _PUT,
        repository_id=repository_id,
        name=name,
        manifest_id=manifest_id,
        pushed_digest=pushed_digest,
        now=now,
        fresh_until=fresh_until,
        created_at=now if created_at is None else created_at,
    )
    assert row is not None
    return bool(row[0])


def set_pushed_digest(tx: Connection, repository_id: str, name: str, pushed_digest: str) -> None:
    """Set the digest in responses for a tag; the tag does not move, so `updated_at` stays."""
    tx.execute(
        _SET_PUSHED_DIGEST, repository_id=repository_id, name=name, pushed_digest=pushed_digest
    )


def remove_tag(tx: Connection, repository_id: str, name: str) -> None:
    """Remove a tag; the manifest stays."""
    tx.execute(_REMOVE, repository_id=repository_id, name=name)


def tags_of(tx: Connection, ids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Map manifest ids to (tag name, pushed digest) pairs, sorted by name."""
    found: dict[str, list[tuple[str, str]]] = {manifest_id: [] for manifest_id in ids}
    for manifest_id, name, pushed_digest in sorted(tx.rows(_OF_MANIFESTS, ids=text_list(ids))):
        found[manifest_id].append((name, pushed_digest))
    return found


def list_tags(
    tx: Connection, handle: str, name: str, after: str, limit: int
) -> tuple[list[str], bool] | None:
    """Return up to `limit` tags after `after` in byte order, and True if the repository is cached.

    Return None if there is no repository. A page is a range of the primary key; its cost does not
    depend on the number of tags.
    """
    rows = tx.rows(_LIST, handle=handle, name=name, after=after, limit=limit)
    if rows:
        return [row[0] for row in rows], rows[0][1] == PULL_THROUGH_CACHE
    found = find_repository(tx, handle, name)
    return ([], found.is_cached) if found else None


class TagDetails(NamedTuple):
    """A tag with its manifest and its times."""

    name: str
    digest: str
    """The sha256 of the tag's manifest."""
    manifest_id: str
    created_at: int
    updated_at: int


_SHOWN: Final = (
    select(_t.name, manifests.c.digest, _t.manifest_id, _t.created_at, _t.updated_at)
    .join(manifests, manifests.c.id == _t.manifest_id)
    .where(_t.repository_id == unseen("repository_id", _t.repository_id.type))
)
_in_range = (_t.name >= unseen("first", _t.name.type), _t.name <= unseen("last", _t.name.type))
_FIND_SHOWN: Final = Statement(_SHOWN.where(given(_t.name)))
_LIST_SHOWN: Final = Statement(page_planned_once(_SHOWN.where(*_in_range).order_by(_t.name)))


def find_tag_details(tx: Connection, repository_id: str, name: str) -> TagDetails | None:
    """Return a tag, or None."""
    return find_one(tx, TagDetails, _FIND_SHOWN, repository_id=repository_id, name=name)


def list_tag_details(
    tx: Connection, repository_id: str, prefix: str, after: str, limit: int
) -> list[TagDetails]:
    """Return up to `limit` tags that begin with `prefix`, after the tag `after`, in byte order."""
    # One lower bound, so that the index range begins where the page does. No tag sorts between
    # `after` and `after` followed by a control character.
    first = after + "\x01" if after else prefix
    return find_all(
        tx,
        TagDetails,
        _LIST_SHOWN,
        repository_id=repository_id,
        first=first,
        last=prefix + LAST_CHARACTER,
        limit=limit,
    )
