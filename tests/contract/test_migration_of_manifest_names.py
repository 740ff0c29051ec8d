"""What revision 0008 finds in a database that has a past."""

from __future__ import annotations

import hashlib
from typing import Final

from alembic import command
from sqlalchemy import text

from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.recount import querying

BODIES: Final = [b"%d" % number for number in range(120)]


def test_manifests_get_the_other_name_they_were_not_pushed_by(bare_url: str) -> None:
    def names(body: bytes) -> tuple[str, str]:
        return (
            f"sha512:{hashlib.sha512(body).hexdigest()}",
            f"sha256:{hashlib.sha256(body).hexdigest()}",
        )

    with migration_connection(bare_url) as connection:
        command.upgrade(configuration(connection), "0004")
        for account in ("a", "b"):
            connection.execute(
                text(
                    "INSERT INTO accounts (id, handle, status, auto_create_repositories,"
                    " created_at) VALUES (:id, :handle, 'active', true, 0)"
                ),
                {"id": account, "handle": account},
            )
            connection.execute(
                text(
                    "INSERT INTO manifest_bodies (account_id, digest, body)"
                    " VALUES (:account, :digest, :body)"
                ),
                [
                    {"account": account, "digest": names(body)[1], "body": body}
                    for body in BODIES[: None if account == "a" else 1]
                ],
            )
        alias, digest = names(BODIES[7])
        connection.execute(
            text("INSERT INTO digest_aliases VALUES ('a', :alias, :digest)"),
            {"alias": alias, "digest": digest},
        )
    migrate(bare_url)
    with querying(bare_url) as query:
        found = query("SELECT account_id, alias, digest FROM digest_aliases")
    expected = {("a", *names(body)) for body in BODIES} | {("b", *names(BODIES[0]))}
    assert len(found) == len(expected)
    assert {tuple(row) for row in found} == expected
