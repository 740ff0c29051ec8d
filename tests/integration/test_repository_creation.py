"""A push creates a repository on PostgreSQL while one of this name is deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from registry.metadata.repositories.repository import (
    add_account,
    find_account,
    find_or_add_repository,
)
from tests.databases import opened
from tests.dying import PassingConnection
from tests.recount import querying


class Meddled(PassingConnection):
    """A connection between whose first two statements something happens."""

    def __init__(self, connection: Connection, meddle: Callable[[], object]) -> None:
        super().__init__(connection)
        self._meddle = meddle
        self._count = 0

    def before(self, _statement: Statement, _parameters: object) -> None:
        self._count += 1
        if self._count == 2:
            self._meddle()


@pytest.mark.postgresql
async def test_a_repository_deleted_meanwhile_is_made_anew(postgresql_database: str) -> None:
    def delete() -> None:
        with querying(postgresql_database) as query:
            assert len(query("UPDATE repositories SET deleted_at = 1 RETURNING id")) == 1

    def create(tx: Connection, repository_id: str) -> str:
        account = find_account(tx, "dev")
        assert account is not None
        return find_or_add_repository(tx, repository_id, account, "app", 1).id

    first, second = uuid7(), uuid7()
    async with opened(postgresql_database) as database:
        await database.write(add_account, uuid7(), "dev", 1)
        assert await database.write(create, first) == first
        assert await database.write(lambda tx: create(Meddled(tx, delete), second)) == second
        assert await database.write(create, uuid7()) == second
