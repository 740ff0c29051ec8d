"""Queries of fsck: upload sessions, manifests, rows without a parent, counters with recounts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, find_all, given, total
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.identity.tables import accounts
from cloudcore.objects.damage import Miscount
from registry.metadata.blobs.objects import HAS_BYTES
from registry.metadata.control_tables import (
    deleted_manifest_blobs,
    deleted_manifest_children,
    deleted_manifests,
    deleted_tags,
    quarantined_objects,
    repository_folders,
)
from registry.metadata.pull_through.tables import deleted_missing_blobs, missing_blobs
from registry.metadata.tables import (
    blob_objects,
    manifest_blobs,
    manifest_bodies,
    manifest_children,
    manifests,
    repositories,
    repository_blobs,
    tags,
    uploads,
)

_o, _m, _r, _l = blob_objects.c, manifests.c, repositories.c, repository_blobs.c
_t, _f = deleted_tags.c, repository_folders.c
_d = deleted_manifests.c
_path: Final = accounts.c.handle.concat(sa.literal_column("'/'")).concat(_r.name)


class SessionRow(NamedTuple):
    """The columns of an upload session that fsck checks."""

    id: str
    stage_id: str
    received_bytes: int
    """The number of bytes acknowledged to the client."""
    expires_at: int
    is_sealed: bool
    body: bytes | None
    """The received bytes, plain or sealed; None if they are staged."""


class ManifestBody(NamedTuple):
    """A manifest with its bytes (None if lost), and how many edges to blobs and children it has."""

    id: str
    repository: str
    """``<account handle>/<name>``, as in pull commands."""
    digest: str
    media_type: str
    body: bytes | None
    blob_edges: int
    child_edges: int


def _count(column: Any, *where: Any) -> Any:  # noqa: ANN401 - SQLAlchemy expressions
    return sa.select(sa.func.count()).select_from(column.table).where(*where).scalar_subquery()


def _after(query: sa.Select[Any], column: Any) -> Statement:  # noqa: ANN401
    return paged(query.where(column > sa.bindparam("after")).order_by(column))


_COUNTS: Final = Statement(
    sa.select(
        sa.select(sa.func.count()).select_from(blob_objects).scalar_subquery(),
        sa.select(sa.func.count()).select_from(manifests).scalar_subquery(),
    )
)
_u, _q = uploads.c, quarantined_objects.c
_OWNED: Final = Statement(
    sa.union_all(
        sa.select(_o.stored_id).where(_o.stored_id.in_(listed("ids")), HAS_BYTES),
        sa.select(_u.id).where(_u.id.in_(listed("ids")), _u.stage_id.is_(None)),
        sa.select(_u.stage_id).where(_u.stage_id.in_(listed("ids"))),
        sa.select(_q.stored_id).where(_q.stored_id.in_(listed("ids"))),
    )
)
_UPLOADS: Final = _after(
    sa.select(
        _u.id,
        sa.func.coalesce(_u.stage_id, _u.id),
        _u.received_bytes,
        _u.expires_at,
        _u.kms_key_id.is_not(None),
        _u.body,
    ),
    _u.id,
)


def _documents(
    of: sa.Table,
    blobs: sa.ColumnElement[str],
    missing: sa.ColumnElement[str],
    children: sa.ColumnElement[str],
) -> sa.Select[Any]:
    """Build a query for the manifests in the table `of`, with their bytes and numbers of edges.

    `of` has either live or deleted manifests. `blobs`, `missing` and `children` are the columns of
    the three tables of edges that name the manifest. Blobs that the pull-through cache has yet to
    fetch (`missing`) count as blob edges.
    """
    m = of.c
    return (
        sa.select(
            m.id,
            _path,
            m.digest,
            m.media_type,
            manifest_bodies.c.body,
            _count(blobs, blobs == m.id) + _count(missing, missing == m.id),
            _count(children, children == m.id),
        )
        .select_from(of)
        .outerjoin(repositories, _r.id == m.repository_id)
        .outerjoin(accounts, accounts.c.id == _r.account_id)
        .outerjoin(
            manifest_bodies,
            sa.and_(
                manifest_bodies.c.account_id == m.account_id, manifest_bodies.c.digest == m.digest
            ),
        )
    )


_LIVE: Final = _documents(
    manifests,
    manifest_blobs.c.manifest_id,
    missing_blobs.c.manifest_id,
    manifest_children.c.parent_id,
)
_MANIFESTS: Final = _after(_LIVE, _m.id)
_OF_REPOSITORY: Final = given(_m.repository_id)
_SAMPLES: Final = (
    paged(_LIVE.where(_OF_REPOSITORY).order_by(_m.id.desc())),
    paged(_LIVE.where(_OF_REPOSITORY).order_by(_m.id)),
    paged(
        _documents(
            deleted_manifests,
            deleted_manifest_blobs.c.manifest_id,
            deleted_missing_blobs.c.manifest_id,
            deleted_manifest_children.c.manifest_id,
        )
        .where(given(_d.repository_id))
        .order_by(_d.deleted_at.desc(), _d.id.desc())
    ),
)
_DANGLING_TAGS: Final = Statement(
    sa.select(tags.c.name, tags.c.manifest_id)
    .outerjoin(manifests, _m.id == tags.c.manifest_id)
    .where(_m.id.is_(None))
)
_DANGLING_LINKS: Final = Statement(
    sa.select(_l.digest, _l.object_id)
    .outerjoin(blob_objects, _o.id == _l.object_id)
    .where(_o.id.is_(None))
)
_RECOUNTS: Final = {
    _r.image_count: _count(_m.id, _m.repository_id == _r.id),
    _r.tag_count: _count(tags.c.name, tags.c.repository_id == _r.id),
    _r.tagged_image_count: _count(_m.id, _m.repository_id == _r.id, _m.tag_count > ZERO),
    _r.size_bytes: sa.select(total(_l.size))
    .where(_l.repository_id == _r.id, _l.manifest_refs > ZERO)
    .scalar_subquery(),
    _r.deleted_image_count: _count(_d.id, _d.repository_id == _r.id),
    _r.deleted_tag_count: _count(
        _t.name,
        _t.repository_id == _r.id,
        sa.exists().where(_m.repository_id == _t.repository_id, _m.digest == _t.digest),
    ),
}
"""The counters of repositories, each with its recount."""
_REPOSITORIES: Final = _after(
    sa.select(_r.id, _path, *chain.from_iterable(_RECOUNTS.items())).outerjoin(
        accounts, accounts.c.id == _r.account_id
    ),
    _r.id,
)
_held = _count(
    _r.id,
    _r.account_id == _f.account_id,
    _r.deleted_at.is_(None),
    _r.name >= _f.folder,
    _r.name < _f.folder.concat(sa.literal_column("'~'")),  # after every character of a name
)
_MISCOUNTED_FOLDERS: Final = Statement(
    sa.select(_f.folder, _f.account_id, _f.repository_count, _held).where(
        _f.repository_count != _held
    )
)


def _without_folder(
    name: sa.ColumnElement[str], account_id: sa.ColumnElement[str]
) -> sa.Select[Any]:
    # Strip all characters but slashes from the end: the folder is left.
    nothing: sa.ColumnElement[str] = sa.literal_column("''")
    folder = sa.func.rtrim(name, sa.func.replace(name, sa.literal_column("'/'"), nothing))
    parent = repository_folders.alias("parent").c
    is_known = sa.exists().where(parent.account_id == account_id, parent.folder == folder)
    return sa.select(folder, account_id).where(~is_known).distinct()


_MISSING_FOLDERS: Final = Statement(
    sa.union_all(
        _without_folder(_r.name, _r.account_id).where(_r.deleted_at.is_(None)),
        _without_folder(sa.func.rtrim(_f.folder, sa.literal_column("'/'")), _f.account_id),
    )
)
_references = _count(
    manifest_blobs.c.digest,
    manifest_blobs.c.repository_id == _l.repository_id,
    manifest_blobs.c.digest == _l.digest,
)
_MISCOUNTED_LINKS: Final = Statement(
    sa.select(_l.digest, _l.manifest_refs, _references).where(_l.manifest_refs != _references)
)
_tagged = _count(tags.c.name, tags.c.manifest_id == _m.id)
_MISCOUNTED_TAGS: Final = Statement(
    sa.select(_m.digest, _m.tag_count, _tagged).where(_m.tag_count != _tagged)
)


def totals(tx: Connection) -> tuple[int, int]:
    """Return the numbers of objects and of manifests."""
    row = tx.row(_COUNTS)
    assert row is not None
    return int(row[0]), int(row[1])


def owned(tx: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of `ids` that name bytes of an object, live or quarantined, or of a session."""
    return {row[0] for row in tx.rows(_OWNED, ids=text_list(ids))}


def sessions(tx: Connection, after: str, limit: int) -> list[SessionRow]:
    """Return up to `limit` upload sessions with ids after `after`, sorted by id."""
    return find_all(tx, SessionRow, _UPLOADS, after=after, limit=limit)


def manifest_documents(tx: Connection, after: str, limit: int) -> list[ManifestBody]:
    """Return up to `limit` live manifests with ids after `after`, sorted by id."""
    return find_all(tx, ManifestBody, _MANIFESTS, after=after, limit=limit)


def sample_manifests(tx: Connection, repository_id: str, limit: int) -> list[ManifestBody]:
    """Return a repository's newest, oldest and last deleted manifests, up to `limit` of each."""
    return [
        ManifestBody(*row)
        for sample in _SAMPLES
        for row in tx.rows(sample, repository_id=repository_id, limit=limit)
    ]


def dangling_tags(tx: Connection) -> list[tuple[str, str]]:
    """Return (name, manifest id) of tags without a manifest, which foreign keys should prevent."""
    return list(tx.rows(_DANGLING_TAGS))


def dangling_links(tx: Connection) -> list[tuple[str, str]]:
    """Return (digest, object id) of links without an object, which foreign keys should prevent."""
    return list(tx.rows(_DANGLING_LINKS))


def miscounts(tx: Connection, after: str, limit: int) -> tuple[list[Miscount], str | None]:
    """Return the wrong counters of the next `limit` repositories after the id `after`.

    The second value is the last of these repositories' ids; None if there were none.
    """
    rows = tx.rows(_REPOSITORIES, after=after, limit=limit)
    found = [
        Miscount(f"{counter.name} of repository {row[1]}", int(recorded), int(counted))
        for row in rows
        for counter, recorded, counted in zip(_RECOUNTS, row[2::2], row[3::2], strict=True)
        if recorded != counted
    ]
    return found, rows[-1][0] if rows else None


def miscounted_references(tx: Connection) -> list[Miscount]:
    """Return the wrong counters of links, folders and manifests."""
    links = [
        Miscount(f"manifest_refs of blob {row[0]}", row[1], row[2])
        for row in tx.rows(_MISCOUNTED_LINKS)
    ]
    folders = [
        Miscount(f"repository_count of folder '{row[0]}' of account {row[1]}", *row[2:])
        for row in tx.rows(_MISCOUNTED_FOLDERS)
    ]
    folders += [
        Miscount(f"repository_count of folder '{row[0]}' of account {row[1]}", 0, 1)
        for row in tx.rows(_MISSING_FOLDERS)
    ]
    return [*links, *folders] + [
        Miscount(f"tag_count of manifest {row[0]}", row[1], row[2])
        for row in tx.rows(_MISCOUNTED_TAGS)
    ]
