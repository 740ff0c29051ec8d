"""What revision 0011 makes of people, members and pending invitations."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest
from alembic import command
from sqlalchemy import Connection, text

from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.recount import querying

WEEK: Final = 7 * 24 * 3600 * 1_000_000
PEOPLE: Final = ("ada", "bob", "eve")
MEMBERS: Final = (
    ("main", "ada", "owner", "active", 10),  # made together: the first account's
    ("main", "bob", "member", "active", 20),  # added by POST /v1/users
    ("side", "bob", "billing", "active", 99),  # accepted an invitation
    ("main", "eve", "owner", "invited", 70),
    ("side", "eve", "member", "active", 71),
)
CREATED: Final = {"ada": 10, "bob": 20, "eve": 30}


def add(connection: Connection, table: str, **row: object) -> None:
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)


def fill(connection: Connection) -> None:
    """Write what a registry of revision 0010 had."""
    for name in ("main", "side", *(f"of-{person}" for person in PEOPLE)):
        is_personal = name.startswith("of-")
        moments = {"created_at": 1, "updated_at": 1}
        add(connection, "organizations", id=name, name=name, is_personal=is_personal, **moments)
    for person in PEOPLE:
        created = CREATED[person]
        add(
            connection,
            "users",
            id=person,
            email=f"{person}@example.org",
            password=f"kept of {person}",
            must_change_password=False,
            organization_id=f"of-{person}",
            status="active",
            created_at=created,
            updated_at=created,
        )
        personal = ("owner", "active", created)
        _join(connection, f"of-{person}", person, *personal)
        add(
            connection,
            "sessions",
            id=f"session-of-{person}",
            kind="user",
            user_id=person,
            created_at=created,
            expires_at=1,
        )
    for organization, person, role, status, created_at in MEMBERS:
        _join(connection, organization, person, role, status, created_at)


def _join(
    connection: Connection, organization: str, person: str, role: str, status: str, created_at: int
) -> None:
    add(
        connection,
        "memberships",
        organization_id=organization,
        user_id=person,
        role=role,
        status=status,
        created_at=created_at,
    )


def test_people_belong_to_who_added_them_and_invitations_need_a_code(bare_url: str) -> None:
    with migration_connection(bare_url) as connection:
        command.upgrade(configuration(connection), "0010")
        fill(connection)
    migrate(bare_url)
    with querying(bare_url) as query:
        people = "SELECT id, email, password, home_organization_id FROM users ORDER BY id"
        assert [tuple(row) for row in query(people)] == [
            (person, f"{person}@example.org", f"kept of {person}", home)
            for person, home in zip(PEOPLE, ("main", "main", None), strict=True)
        ]
        members = "SELECT organization_id, user_id, email, role FROM memberships"
        assert {tuple(row) for row in query(members)} == {
            (organization, person, f"{person}@example.org", role)
            for organization, person, role in (
                *(each[:3] for each in MEMBERS if each[3] == "active"),
                *((f"of-{person}", person, "owner") for person in PEOPLE),
            )
        }
        pending = (
            "SELECT organization_id, email, role, code_sha256, created_at, expires_at"
            " FROM invitations"
        )
        assert [tuple(row) for row in query(pending)] == [
            ("main", "eve@example.org", "owner", "", 70, 70 + WEEK)
        ]
        assert len(query("SELECT id FROM sessions")) == len(PEOPLE)  # nothing cascaded


def test_the_database_refuses_namesakes_in_one_organization_alone(bare_url: str) -> None:
    with migration_connection(bare_url) as connection:
        command.upgrade(configuration(connection), "0010")
        fill(connection)
    migrate(bare_url)

    def namesake(connection: Connection, home: str | None) -> None:
        # `bob` copied under another id and with another organization of its own.
        add(
            connection,
            "users",
            id=f"second-{home}",
            email="bob@example.org",
            password="",
            must_change_password=True,
            organization_id="of-bob",
            home_organization_id=home,
            status="active",
            created_at=1,
            updated_at=1,
        )

    def join(connection: Connection, organization: str, email: str = "bob@example.org") -> None:
        joined = {"user_id": "second-side", "role": "member", "created_at": 1}
        add(connection, "memberships", organization_id=organization, email=email, **joined)

    with migration_connection(bare_url) as connection:
        namesake(connection, "side")
        namesake(connection, None)
        join(connection, "of-ada")
        for refused in (
            partial(namesake, connection, "main"),  # it has added bob
            partial(join, connection, "side"),  # bob is a member of it
        ):
            with pytest.raises(Exception, match=r"(?i)unique"), connection.begin_nested():
                refused()
    with (
        pytest.raises(Exception, match=r"(?i)foreign|without its parent"),
        migration_connection(bare_url) as connection,
    ):
        join(connection, "main", "another@example.org")  # not the person's address
