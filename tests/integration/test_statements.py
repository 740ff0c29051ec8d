"""What requests cost in SQL: few statements, and none that grows with the registry."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from cloudcore.db.statement import Statement
from cloudcore.identity.rows import policies
from cloudcore.queue import message_rows
from cloudcore.storage.pieces.rows import PIECE_ROWS
from registry import metadata
from registry.metadata import lifecycle_policies, storage_usage
from registry.metadata.blobs import wraps
from registry.metadata.blobs.objects import BLOB_ROWS
from registry.metadata.collector import collection, erasure
from registry.metadata.images import relations
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from tests.integration.counting import open_counting
from tests.integration.statement_scope import all_statements

BLOB: Final = b"layer"
UNUSED: Final = b"a layer of no image"
DESCRIPTOR: Final = {"mediaType": "application/x", "digest": digest_of(BLOB), "size": len(BLOB)}
BODY: Final = json.dumps({"schemaVersion": 2, "config": DESCRIPTOR, "layers": []}).encode()
DIGEST: Final = digest_of(BODY)
KIND: Final = {"content-type": OCI_MANIFEST}

# The audit and backups read everything; that is their work.
EXEMPT: Final = (
    "registry.metadata.collector.audit",
    "registry.metadata.collector.generations",
    "registry.metadata.collector.wrap_audit",
    "registry.metadata.quotas._HOLD_OBJECTS",  # LOCK TABLE is no statement to prepare
    # fsck, and a backup that is restored
    "registry.metadata.blobs.inline._STRAYS",
    "registry.metadata.blobs.inline._DROP_QUARANTINED",
    # The rules of the pull-through cache, which are few: for its chore, and for the metrics.
    "registry.metadata.pull_through.cached_images._ALL",
    "registry.metadata.pull_through.rules._OF_ALL",
)
SORTED: Final = {
    # The first 10,000 of what a key protects, in whatever order they were found.
    "registry.metadata.key_usage._LIST_IMAGES",
    "registry.metadata.key_usage._LIST_REPOSITORIES",
    # The blobs of a repository's deleted images, by a run in the background.
    "registry.metadata.blobs.key_moves._DELETED",
    # The images of a rule of the pull-through cache, by a chore in the background.
    "registry.metadata.pull_through.cached_images._OLDEST",
    # The indexes that list one manifest, read where its deletion is refused.
    "registry.metadata.images.manifests._PARENTS",
    # The tags of one manifest.
    "registry.metadata.tags.history._ADD_DELETIONS",
}

ON_POSTGRESQL: Final = {
    # SQLite has no statements that make several changes (`Connection.joins_changes`).
    f"registry.metadata.blobs.new_blobs.{kind}{session}"
    for kind in ("_PLAIN", "_SEALED")
    for session in ("", "_UNWRITTEN", "_ROW")
}


def statements() -> Iterator[tuple[str, Statement]]:
    """Return every statement of the metadata package with its name."""
    for module in pkgutil.walk_packages(metadata.__path__, f"{metadata.__name__}."):
        if not module.ispkg and module.name not in EXEMPT and ".migrations." not in module.name:
            found = vars(importlib.import_module(module.name))
            for name, value in found.items():
                if isinstance(value, Statement) and f"{module.name}.{name}" not in EXEMPT:
                    yield f"{module.name}.{name}", value
    for rows in (BLOB_ROWS, PIECE_ROWS):
        for name, value in rows.statements.items():
            if name not in ("totals", "count_stored"):  # of all objects
                yield f"{rows.table.name}.{name}", value


STATEMENTS: Final = dict(statements())


class Anything(dict[str, object]):
    """Has a value for every parameter: sqlite3 wants one, and the plan does not depend on it."""

    def __missing__(self, key: str) -> object:
        return "[]"


Plans = Callable[[Statement], list[str]]


@pytest.fixture(scope="module")
def plan_of(migrated_file: Path) -> Iterator[Plans]:
    """Return a function that tells how SQLite carries a statement out."""
    with closing(sqlite3.connect(migrated_file)) as raw:

        def plan(statement: Statement) -> list[str]:
            rows = raw.execute(f"EXPLAIN QUERY PLAN {statement.sqlite}", Anything())
            return [row[3] for row in rows]

        yield plan


def test_no_statement_reads_a_whole_table(plan_of: Plans) -> None:
    """Nor does it sort what it shows a page of: that is read off an index."""
    assert len(STATEMENTS) > 200
    wrong: dict[str, list[str]] = {}
    for name in sorted(STATEMENTS.keys() - ON_POSTGRESQL):
        details = plan_of(STATEMENTS[name])
        scanned = {detail.split()[1] for detail in details if detail.startswith("SCAN")}
        # A statement may read whole what it gathers itself, and the elements of a parameter.
        gathered = {d.split()[1] for d in details if d.startswith(("CO-ROUTINE", "MATERIALIZE"))}
        is_page = " LIMIT " in STATEMENTS[name].sqlite and name not in SORTED
        sorts = any("TEMP B-TREE FOR ORDER BY" in detail for detail in details)
        if scanned - gathered - {"listed", "CONSTANT"} or (is_page and sorts):
            wrong[name] = details
    assert wrong == {}


MESSAGES: Final = sorted(
    name
    for name, value in vars(message_rows).items()
    if isinstance(value, Statement) and "json_each" in value.sqlite
)


def test_messages_are_found_by_their_ids(plan_of: Plans) -> None:
    """A queue has up to 100,000 messages: to lease one must not read the others."""
    assert {"_LEASE", "_FIND_ALL", "_LOCK_LEASES", "_DELETE"} <= set(MESSAGES)
    for name in MESSAGES:
        details = plan_of(vars(message_rows)[name])
        (searched,) = (each for each in details if each.startswith("SEARCH queue_messages"))
        assert "uq_queue_messages_id (id=?" in searched, name


OF_THE_COLLECTOR: Final = {
    name: value
    for module in (wraps, erasure, collection)
    for name, value in vars(module).items()
    if isinstance(value, Statement)
    and (":ids" in value.sqlite or ":digests" in value.sqlite or ":limit" in value.sqlite)
}


def test_what_the_collector_names_is_not_sought_in_a_whole_account(plan_of: Plans) -> None:
    """An index that the account alone leads into reads all its rows."""
    names = {"_SWEEP", "_DROP", "_ERASE", "_UNLINKED_EDGES", "_BEGIN_REMOVAL", "_FINISH_REMOVAL"}
    assert names <= OF_THE_COLLECTOR.keys()
    for name, statement in OF_THE_COLLECTOR.items():
        plan = plan_of(statement)
        assert not [each for each in plan if each.endswith("(account_id=?)")], (name, plan)


OF_SUBJECT: Final = "ix_manifests_subject (repository_id=? AND subject_digest=?)"
SOME_OF_MANY: Final = [
    (lifecycle_policies, "_TAGS_OF_SOME", "tags USING INDEX ix_tags_manifest_id (manifest_id=?)"),
    (relations, "_REFERRERS", f"referrer USING COVERING INDEX {OF_SUBJECT}"),
    (relations, "_REFERRERS_BY_ALIAS", f"referrer USING COVERING INDEX {OF_SUBJECT}"),
    (policies, "_LIST_POLICIES_OF", "policies USING INDEX sqlite_autoindex_policies_1 (id=?)"),
    # A page begins where the last one ended: else each would read all those before it.
    (storage_usage, "_TOMBSTONES", "(deleted_at,id)>(?,?)"),
]


def test_some_of_what_an_owner_has_are_not_sought_among_all(plan_of: Plans) -> None:
    """A repository may have 100,000 tags and referrers, an account a thousand policies."""
    for module, name, search in SOME_OF_MANY:
        plan = plan_of(vars(module)[name])
        assert any(detail.startswith("SEARCH") and search in detail for detail in plan), plan


@pytest.mark.postgresql
def test_postgresql_takes_every_statement(postgresql_database: str) -> None:
    """So what a statement says is tested on SQLite alone, unless databases differ in it."""
    taken = all_statements() | STATEMENTS
    assert len(taken) > 1_000
    with psycopg.connect(postgresql_database, autocommit=True) as connection:
        for number, (name, statement) in enumerate(taken.items()):
            text = statement.postgresql
            if text.startswith("LOCK TABLE"):
                continue  # no statement to prepare
            parameters = sorted({part.split(")")[0] for part in text.split("%(")[1:]})
            for place, parameter in enumerate(parameters, 1):
                text = text.replace(f"%({parameter})s", f"${place}")
            try:
                connection.execute(f"PREPARE s{number} AS {text}".encode())
            except psycopg.errors.IndeterminateDatatype:
                continue  # it takes text or a number alike; the driver says which
            except psycopg.Error as error:
                raise AssertionError(name) from error


@pytest.mark.parametrize(
    ("method", "target", "body", "statements", "changes", "calls"),
    [
        ("GET", "/v2/", b"", 0, 0, 0),
        ("GET", "manifests/v1", b"", 1, 0, 1),
        ("HEAD", "manifests/v1", b"", 1, 0, 1),
        ("GET", f"manifests/{DIGEST}", b"", 1, 0, 1),
        ("HEAD", f"manifests/{DIGEST}", b"", 1, 0, 1),
        ("GET", "manifests/none", b"", 2, 0, 1),
        ("GET", f"blobs/{digest_of(BLOB)}", b"", 1, 0, 1),
        ("HEAD", f"blobs/{digest_of(BLOB)}", b"", 1, 0, 1),
        ("GET", "tags/list?n=10", b"", 1, 0, 1),
        ("GET", "/v2/_catalog?n=10", b"", 1, 0, 1),
        ("GET", f"referrers/{DIGEST}", b"", 4, 0, 1),  # a list for each name of the subject
        ("POST", "blobs/uploads/", b"", 2, 0, 1),
        # The account has these bytes: the first try changes nothing, then its copy is checked.
        ("POST", f"blobs/uploads/?digest={digest_of(BLOB)}", BLOB, 7, 2, 4),
        ("PUT", "manifests/v1", BODY, 5, 1, 2),
        ("DELETE", "manifests/v1", b"", 9, 1, 1),
        ("DELETE", f"manifests/{DIGEST}", b"", 21, 1, 1),
        ("DELETE", f"blobs/{digest_of(UNUSED)}", b"", 10, 1, 1),
        ("DELETE", "manifests/none", b"", 9, 1, 1),
        ("DELETE", f"manifests/{digest_of(UNUSED)}", b"", 9, 1, 1),
    ],
)
async def test_a_request_takes_few_statements_and_transactions(
    sqlite_database: str,
    method: str,
    target: str,
    body: bytes,
    statements: int,
    changes: int,
    calls: int,
) -> None:
    async with open_counting(sqlite_database) as (registry, counted):
        ask = registry.client.request
        for blob in (BLOB, UNUSED):
            push = f"/v2/dev/app/blobs/uploads/?digest={digest_of(blob)}"
            assert (await ask("POST", push, blob)).status == 201
        assert (await ask("PUT", "/v2/dev/app/manifests/v1", BODY, KIND)).status == 201
        counted.start()
        path = target if target.startswith("/") else f"/v2/dev/app/{target}"
        status = (await ask(method, path, body, KIND)).status
        is_absent = target in ("manifests/none", f"manifests/{digest_of(UNUSED)}")
        assert status == 404 if is_absent else status in (200, 201, 202), status
        texts = [statement.sqlite for statement in counted.seen]
        assert len(texts) <= statements, texts
        assert (counted.changes, counted.reads + counted.changes) == (changes, calls)
