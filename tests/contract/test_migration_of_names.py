"""What revision 0022 makes of the repositories and tags of a database that has a past."""

from __future__ import annotations

from alembic import command
from sqlalchemy import Connection, text

from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.recount import check_search_index, querying


def fill(connection: Connection) -> None:
    """Write five repositories, two of them with tags, one with more than a batch has."""
    for statement in (
        (
            "INSERT INTO accounts (id, handle, status, auto_create_repositories, created_at)"
            " VALUES ('a', 'acme', 'active', true, 0)"
        ),
        "INSERT INTO manifest_bodies (account_id, digest, body) VALUES ('a', 'd', '')",
    ):
        connection.execute(text(statement))
    for number in range(5):
        connection.execute(
            text(
                "INSERT INTO repositories (id, account_id, name, tag_mutability, source,"
                " created_at, updated_at) VALUES (:id, 'a', :name, 'mutable', 'user', 0, 0)"
            ),
            {"id": f"r{number}", "name": f"r{number}"},
        )
    for repository, count in (("r1", 3), ("r3", 5001)):
        connection.execute(
            text(
                "INSERT INTO manifests (id, repository_id, account_id, digest, media_type,"
                " is_index, manifest_size_bytes, size_bytes, annotations, pushed_at)"
                " VALUES (:id, :of, 'a', 'd', 'm', false, 1, 0, '{}', 0)"
            ),
            {"id": repository, "of": repository},
        )
        connection.execute(
            text(
                "INSERT INTO tags (repository_id, name, manifest_id, pushed_digest,"
                " created_at, updated_at) VALUES (:id, :name, :of, 'd', 0, 0)"
            ),
            [{"id": repository, "of": repository, "name": f"V{number}"} for number in range(count)],
        )


def test_all_names_are_inserted(bare_url: str) -> None:
    with migration_connection(bare_url) as connection:
        command.upgrade(configuration(connection), "0021")
        fill(connection)
    migrate(bare_url)
    with querying(bare_url) as query:
        check_search_index(query)
        assert len(query("SELECT id FROM search_names")) == 5 + 3 + 5001
