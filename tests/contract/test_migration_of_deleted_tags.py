"""What revision 0003 finds in a database that has a past."""

from __future__ import annotations

import time
from typing import Final

from alembic import command
from sqlalchemy import Connection, text

from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.recount import check_counters, querying

DAY: Final = 24 * 3600 * 10**6
NOW: Final = time.time_ns() // 1000
HERE, DELETED, LOST = (f"sha256:{letter * 64}" for letter in "abc")
REPOSITORIES: Final[tuple[tuple[str, str, str, int | None], ...]] = (
    ("r1", "acme", "team/app", None),
    ("r2", "acme", "team/web/shop", None),
    ("r3", "acme", "plain", NOW - DAY),
    ("r4", "slow", "plain", None),
)
EVENTS: Final = (
    ("r1", "gone", "created", HERE, None, 3),
    ("r1", "gone", "deleted", None, HERE, 2),
    ("r1", "gone", "restored", HERE, None, 2),
    ("r1", "gone", "deleted", None, HERE, 1),
    ("r1", "back", "deleted", None, HERE, 2),
    ("r1", "back", "created", HERE, None, 1),
    ("r1", "old", "deleted", None, HERE, 8),
    ("r1", "waits", "deleted", None, DELETED, 1),
    ("r1", "lost", "deleted", None, LOST, 1),
    ("r3", "with-repository", "deleted", None, HERE, 2),
    ("r4", "old", "deleted", None, HERE, 8),
)
"""Repository, tag, action, digest, previous digest, and how many days ago."""


def fill(connection: Connection) -> None:
    """Write what a registry of revision 0002 had."""

    def add(table: str, **row: object) -> None:
        names = ", ".join(row)
        values = ", ".join(f":{name}" for name in row)
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)

    image = {
        "media_type": "m",
        "is_index": False,
        "manifest_size_bytes": 1,
        "size_bytes": 0,
        "annotations": "{}",
        "pushed_at": NOW - 9 * DAY,
    }
    for handle in ("acme", "slow"):
        add(
            "accounts",
            id=handle,
            handle=handle,
            status="active",
            auto_create_repositories=True,
            created_at=0,
        )
        add("manifest_bodies", account_id=handle, digest=HERE, body=b"{}")
    add("manifest_bodies", account_id="acme", digest=DELETED, body=b"{}")
    settings = {"undelete_days": 30, "uncounted_pullers": "[]", "updated_at": 0}
    add("registry_settings", account_id="slow", **settings)
    for number, (repository, account, name, deleted_at) in enumerate(REPOSITORIES):
        counts = {"image_count": 1, "tag_count": int(repository == "r1")}
        add(
            "repositories",
            id=repository,
            account_id=account,
            name=name,
            source="user",
            **{"tag_mutability": "mutable", "created_at": 0, "updated_at": 0, **counts},
            tagged_image_count=counts["tag_count"],
            deleted_at=deleted_at,
            restorable_until=deleted_at and deleted_at + 7 * DAY,
        )
        of = {"repository_id": repository, "account_id": account}
        tags = counts["tag_count"]
        add("manifests", id=f"m{number}", digest=HERE, tag_count=tags, **of, **image)
    add(
        "deleted_manifests",
        **{"id": "t", "digest": DELETED, "repository_id": "r1", "account_id": "acme", **image},
        tags="[]",
        deleted_at=NOW - 5 * DAY,
        deleted_by="",
        restorable_until=NOW + 2 * DAY,
    )
    pointed = {"manifest_id": "m0", "pushed_digest": HERE, "created_at": 0, "updated_at": 0}
    add("tags", repository_id="r1", name="back", **pointed)
    for repository, tag, action, digest, previous, days in EVENTS:
        add(
            "tag_events",
            repository_id=repository,
            tag=tag,
            action=action,
            digest=digest,
            previous_digest=previous,
            principal="crn",
            occurred_at=NOW - days * DAY,
        )


def test_deleted_tags_are_found_and_all_is_counted(bare_url: str) -> None:
    with migration_connection(bare_url) as connection:
        command.upgrade(configuration(connection), "0002")
        fill(connection)
    migrate(bare_url)
    with querying(bare_url) as query:
        found = query(
            "SELECT repository_id, name, digest, has_image, restorable_until, sequence"
            " FROM deleted_tags"
        )
        assert {
            (row[0], row[1]): (row[2], bool(row[3]), row[4] - NOW, row[5]) for row in found
        } == {
            ("r1", "gone"): (HERE, True, 6 * DAY, 4),
            ("r1", "waits"): (DELETED, False, 2 * DAY, 8),
            ("r3", "with-repository"): (HERE, True, 5 * DAY, 10),
            ("r4", "old"): (HERE, True, 22 * DAY, 11),
        }
        for account in ("acme", "slow"):
            check_counters(query, account)
        history = "SELECT ordinal FROM tag_events WHERE tag = 'gone' ORDER BY sequence"
        assert [row[0] for row in query(history)] == [1, 2, 3, 4]
        assert {
            row[0]: row[1]
            for row in query(
                "SELECT folder, repository_count FROM repository_folders WHERE account_id = 'acme'"
            )
        } == {"": 2, "team/": 2, "team/web/": 1}
