"""Topics of accounts in a database, without the routes that make them."""

from __future__ import annotations

from itertools import compress

from sqlalchemy import bindparam, column, select, table

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.notifications import topics
from cloudcore.notifications.records import Topic
from cloudcore.notifications.topic_rows import find_topic_named

_accounts = table("accounts", column("id"), column("handle"))
_FIND = Statement(select(_accounts.c.id).where(_accounts.c.handle == bindparam("handle")))


async def add_topics(database: Database, handle: str, *names: str) -> list[Topic]:
    """Create topics of an account, and return them; one that is there is left out."""

    def add(tx: Connection) -> list[Topic]:
        row = tx.row(_FIND, handle=handle)
        assert row is not None
        made = [Topic(uuid7(), row[0], "local", name, "", {}, {}, 0, 0) for name in names]
        is_new = [find_topic_named(tx, row[0], "local", name) is None for name in names]
        return [topics.create_topic(tx, each) for each in compress(made, is_new)]

    return await database.write(add)
