"""A constraint that refuses a change where the code saw nothing wrong: 409, told by its name."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import insert, text

from cloudcore.db.base import Connection, ConstraintViolated, Database
from cloudcore.db.statement import Statement
from tests.control_plane import Options, World, assert_envelope, count_rows, open_world
from tests.databases import on_both_databases
from tests.dying import Kind, PassingDatabase
from tests.things import things

SECRET = "value-nobody-may-read"
_DELETE_ALL = Statement(things.delete())
_INSERT_TWICE = Statement(
    insert(things).values(
        id=text("'one' || :suffix"),
        account_id=text("'acme'"),
        name=text(":name"),
        ready_at=text("0"),
    )
)


def delete_all(tx: Connection) -> None:
    tx.execute(_DELETE_ALL)


class RivalDatabase(PassingDatabase):
    """Once told to, deletes all things just before the next durable change."""

    is_due = False

    async def before(self, kind: Kind, _call: object) -> None:
        if kind == "write" and self.is_due:
            self.is_due = False
            await self._database.write(delete_all)


async def test_a_change_that_a_constraint_refuses_is_a_conflict(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    rivals: list[RivalDatabase] = []

    def wrap(database: Database) -> Database:
        rivals.append(RivalDatabase(database))
        return rivals[0]

    async with open_world(database_url, Options(wrap=wrap)) as world:
        made = (await world.ask("POST", "/v1/things", {"name": SECRET})).json()["thing"]["id"]
        (rival,) = rivals
        rival.is_due = True
        answer = await world.ask("POST", f"/v1/things/{made}/parts", key="once")
        error = assert_envelope(answer, 409, "CONFLICT")
        assert "params" not in error
        assert error["message"] == "another change was made at the same moment; repeat the request"
        again = await world.ask("POST", f"/v1/things/{made}/parts", key="other")
        assert_envelope(again, 404, "NOT_FOUND")  # now the code sees it
        replayed = await world.ask("POST", f"/v1/things/{made}/parts", key="once")
        assert (replayed.status_code, replayed.content) == (409, answer.content)
    assert count_rows(database_url, "parts") == 0
    (warning,) = (record for record in caplog.records if record.name == "cloudcore.web.app")
    assert warning.levelno == logging.WARNING
    assert "foreign key constraint" in warning.getMessage().lower()
    assert warning.exc_info is None  # a driver's own words show the row


@on_both_databases
async def test_a_constraint_is_named_and_no_value_shown(plane: World) -> None:
    database: Database = plane.database

    def add(tx: Connection) -> None:
        tx.execute(_INSERT_TWICE, suffix="a", name=SECRET)
        tx.execute(_INSERT_TWICE, suffix="b", name=SECRET)

    with pytest.raises(ConstraintViolated) as refused:
        await database.write(add)
    words = str(refused.value)
    assert "things.account_id, things.name" in words or "things_account_id_name_key" in words
    assert SECRET not in words
