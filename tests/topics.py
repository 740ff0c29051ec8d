"""Topics of accounts in a database, without the routes that make them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from sqlalchemy import bindparam, column, select, table

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.keyring import Keyring
from cloudcore.notifications.envelope import new_secret, seal_secret
from cloudcore.notifications.subscriptions import SUBSCRIPTION_ROWS
from cloudcore.notifications.topic import Subscription, Topic
from cloudcore.notifications.topics import ROWS, TOPICS

_accounts = table("accounts", column("id"), column("handle"))
_FIND = Statement(select(_accounts.c.id).where(_accounts.c.handle == bindparam("handle")))


def new_topic(account_id: str, name: str, now: int) -> Topic:
    """Return a topic that is in no database yet."""
    return Topic(
        id=uuid7(),
        account_id=account_id,
        region="local",
        name=name,
        created_at=now,
        updated_at=now,
    )


async def add_topics(database: Database, handle: str, *names: str) -> list[Topic]:
    """Create topics of an account, and return them; one that is there is left out."""

    def add(tx: Connection) -> list[Topic]:
        row = tx.row(_FIND, handle=handle)
        assert row is not None
        made = [new_topic(row[0], name, 0) for name in names]
        is_new = [ROWS.find_named(tx, row[0], "local", name) is None for name in names]
        return [TOPICS.create(tx, each) for each in compress(made, is_new)]

    return await database.write(add)


def add_webhooks(
    tx: Connection, topic: Topic, endpoints: Sequence[str], keyring: Keyring
) -> list[str]:
    """Subscribe webhooks to a topic, confirmed; return the subscriptions' ids."""
    ids = [uuid7() for _ in endpoints]
    for subscription_id, endpoint in zip(ids, endpoints, strict=True):
        made = Subscription(
            id=subscription_id,
            account_id=topic.account_id,
            region=topic.region,
            topic_id=topic.id,
            protocol="http",
            endpoint=endpoint,
            status="confirmed",
            created_at=topic.created_at,
            updated_at=topic.created_at,
            active_since=topic.created_at,
            signing_secret=seal_secret(keyring, subscription_id, new_secret()),
        )
        SUBSCRIPTION_ROWS.add(tx, made)
    return ids
