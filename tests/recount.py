"""What the rows add up to, counted by SQL of our own and not by the registry's."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg

Query = Callable[..., Sequence[Sequence[Any]]]
"""Runs SQL with ``?`` parameters and returns its rows."""

_REPOSITORIES: Final = """
SELECT r.name,
       r.image_count, (SELECT count(*) FROM manifests m WHERE m.repository_id = r.id),
       r.tag_count, (SELECT count(*) FROM tags t WHERE t.repository_id = r.id),
       r.size_bytes,
       (SELECT coalesce(sum(l.size), 0) FROM repository_blobs l WHERE l.repository_id = r.id
           AND l.digest IN (SELECT e.digest FROM manifest_blobs e WHERE e.repository_id = r.id)),
       r.tagged_image_count,
       (SELECT count(DISTINCT t.manifest_id) FROM tags t WHERE t.repository_id = r.id),
       r.deleted_image_count,
       (SELECT count(*) FROM deleted_manifests d WHERE d.repository_id = r.id),
       r.deleted_tag_count,
       (SELECT count(*) FROM deleted_tags d JOIN manifests m
           ON m.repository_id = d.repository_id AND m.digest = d.digest
         WHERE d.repository_id = r.id)
  FROM repositories r JOIN accounts a ON a.id = r.account_id WHERE a.handle = ?
"""
_LIVE_NAMES: Final = """
SELECT r.name FROM repositories r JOIN accounts a ON a.id = r.account_id
 WHERE a.handle = ? AND r.deleted_at IS NULL
"""
_FOLDERS: Final = """
SELECT f.folder, f.repository_count FROM repository_folders f JOIN accounts a
    ON a.id = f.account_id WHERE a.handle = ?
"""
_LINKS: Final = """
SELECT r.name, l.digest, l.manifest_refs,
       (SELECT count(*) FROM manifest_blobs e
         WHERE e.repository_id = l.repository_id AND e.digest = l.digest)
  FROM repository_blobs l JOIN repositories r ON r.id = l.repository_id
  JOIN accounts a ON a.id = r.account_id WHERE a.handle = ?
"""
_MANIFESTS: Final = """
SELECT r.name, m.digest, m.tag_count,
       (SELECT count(*) FROM tags t WHERE t.manifest_id = m.id), m.size_bytes
  FROM manifests m JOIN repositories r ON r.id = m.repository_id
  JOIN accounts a ON a.id = r.account_id WHERE a.handle = ?
"""
_IDLE_BODIES: Final = """
SELECT b.digest FROM manifest_bodies b JOIN accounts a ON a.id = b.account_id
 WHERE a.handle = ? AND NOT EXISTS (
       SELECT 1 FROM manifests m WHERE m.account_id = b.account_id AND m.digest = b.digest)
   AND NOT EXISTS (
       SELECT 1 FROM deleted_manifests d WHERE d.account_id = b.account_id AND d.digest = b.digest)
"""
_NAMES: Final = """
SELECT id, 'repository', name FROM repositories
 UNION ALL SELECT repository_id, 'tag', name FROM tags
"""
_SEARCHED: Final = """
SELECT repository_id, kind, name FROM search_names WHERE state <> 'gone'
"""
_STORED_BYTES: Final = """
SELECT s.bytes, (SELECT coalesce(sum(o.size), 0) FROM blob_objects o
                  WHERE o.account_id = s.account_id AND o.state <> 'shredded')
  FROM stored_bytes s JOIN accounts a ON a.id = s.account_id WHERE a.handle = ?
"""
_EVENTS: Final = """
SELECT r.name, e.tag, count(*), count(DISTINCT e.ordinal), max(e.ordinal) - min(e.ordinal) + 1
  FROM tag_events e JOIN repositories r ON r.id = e.repository_id
  JOIN accounts a ON a.id = r.account_id WHERE a.handle = ? GROUP BY r.name, r.id, e.tag
"""


@contextmanager
def querying(url: str) -> Iterator[Query]:
    """Give a way to the database at `url` that is not the registry's."""
    if url.startswith("sqlite:///"):
        file = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as raw:
            yield lambda sql, *parameters: raw.execute(sql, parameters).fetchall()
        return
    with psycopg.connect(url, autocommit=True) as connection:

        def query(sql: str, *parameters: object) -> Sequence[Sequence[Any]]:
            return connection.execute(sql.replace("?", "%s").encode(), parameters).fetchall()

        yield query


def check_counters(query: Query, account: str) -> None:
    """Check that every counter of an account is what a recount finds."""
    for name, *counts in query(_REPOSITORIES, account):
        kept, counted = counts[0::2], counts[1::2]
        assert [int(n) for n in kept] == [int(n) for n in counted], f"repository {name}"
    folders = Counter(
        name[: end + 1]
        for (name,) in query(_LIVE_NAMES, account)
        for end in range(-1, len(name))
        if end < 0 or name[end] == "/"
    )
    assert {row[0]: int(row[1]) for row in query(_FOLDERS, account)} == folders
    for name, digest, kept, counted in query(_LINKS, account):
        assert kept == counted, f"manifest_refs of {digest} in {name}"
    for name, digest, kept, counted, _ in query(_MANIFESTS, account):
        assert kept == counted, f"tag_count of {digest} in {name}"
    assert query(_IDLE_BODIES, account) == []
    for kept, counted in query(_STORED_BYTES, account):
        assert int(kept) == int(counted), "stored bytes"
    for name, tag, events, *counted in query(_EVENTS, account):
        assert counted == [events] * 2, f"ordinals of the events of {tag} in {name}"
    check_search_index(query)


def check_search_index(query: Query) -> None:
    """Check that the index of names has all names of all accounts, and their terms, and no more."""
    kept = {(row[0], row[1], row[2]) for row in query(_SEARCHED)}
    assert kept == {(row[0], row[1], row[2]) for row in query(_NAMES)}
    terms = Counter(int(row[0]) for row in query("SELECT name_id FROM search_terms"))
    indexed = query("SELECT id, name FROM search_names WHERE state <> 'new'")
    assert terms == {
        int(row[0]): len({row[1].lower()[n : n + 12] for n in range(len(row[1]))})
        for row in indexed
    }


def repository_counters(query: Query, account: str) -> dict[str, tuple[int, int, int]]:
    """Return images, tags and bytes of each repository, as it keeps them."""
    return {
        row[0]: (int(row[1]), int(row[3]), int(row[5])) for row in query(_REPOSITORIES, account)
    }


def manifest_sizes(query: Query, account: str) -> dict[tuple[str, str], int]:
    """Return the size of each manifest by repository and digest, as it is kept."""
    return {(row[0], row[1]): int(row[4]) for row in query(_MANIFESTS, account)}


def object_ids(query: Query) -> set[str]:
    """Return the ids of all objects whose bytes are in the store; check those of all others."""
    inline = {
        row[0]
        for row in query(
            "SELECT stored_id FROM blob_objects WHERE is_inline AND state <> 'shredded'"
        )
    }
    bodies = {row[0] for row in query("SELECT stored_id FROM inline_bytes")}
    quarantined = query("SELECT stored_id FROM quarantined_objects WHERE is_inline")
    assert bodies == inline | {row[0] for row in quarantined}
    return {row[0] for row in query("SELECT id FROM blob_objects WHERE NOT is_inline")}


def upload_ids(query: Query) -> set[str]:
    """Return the ids under which upload sessions have staged bytes, or would have."""
    return {row[0] for row in query("SELECT coalesce(stage_id, id) FROM uploads")}
