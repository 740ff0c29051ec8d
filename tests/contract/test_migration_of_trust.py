"""Revision 0007 over roles of an older version: names mean who bears them at the migration."""

from __future__ import annotations

import json

from alembic import command
from sqlalchemy import text

from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration

OWN, OTHER = (f"0189000{number}-0000-7000-8000-000000000000" for number in (1, 2))
ACCOUNT = (
    "INSERT INTO accounts (id, handle, status, auto_create_repositories, created_at)"
    " VALUES (:id, :handle, 'active', true, 0)"
)
ROLE = (
    "INSERT INTO roles (id, account_id, name, description, trust_policy, max_session_seconds,"
    " created_at, updated_at) VALUES (:id, :account, :name, '', :trust, 3600, 0, 0)"
)
PROGRAM = (
    "INSERT INTO service_accounts (id, account_id, name, description, status, created_at,"
    " updated_at) VALUES ('the-program', :account, 'ci', '', 'active', 0, 0)"
)


def trust(*principals: str) -> str:
    return json.dumps(
        {"version": "1", "statements": [{"effect": "allow", "principals": principals}]}
    )


def test_trusted_names_mean_who_bears_them(bare_url: str) -> None:
    migrate(bare_url)
    foreign = [
        f"crn:iam::{OTHER}:{name}"
        for name in ("role/there", "role/gone", "service-account/ci", f"user/{OTHER}")
    ]
    names = [OTHER, f"crn:iam::{OWN}:role/there", *foreign]
    with migration_connection(bare_url) as connection:
        command.downgrade(configuration(connection), "0004")
        for account, handle in ((OWN, "own"), (OTHER, "other")):
            connection.execute(text(ACCOUNT), {"id": account, "handle": handle})
        for role, account, name, said in (
            ("trusting", OWN, "trusting", trust(*names)),
            ("there", OTHER, "there", trust(OTHER)),
        ):
            values = {"id": role, "account": account, "name": name, "trust": said}
            connection.execute(text(ROLE), values)
        connection.execute(text(PROGRAM), {"account": OTHER})
    migrate(bare_url)
    with migration_connection(bare_url) as connection:
        rows = connection.execute(text("SELECT id, trust_policy, trust_ids FROM roles")).all()
    found = {row[0]: (row[1], json.loads(row[2])) for row in rows}
    assert found["there"] == (trust(OTHER), {})
    assert found["trusting"] == (
        trust(*names),
        {foreign[0]: "there", foreign[1]: "", foreign[2]: "the-program"},
    )
