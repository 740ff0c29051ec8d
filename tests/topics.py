"""Topics of accounts in a database, without the routes that make them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from sqlalchemy import bindparam, column, select, table

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.keyring import Keyring
from cloudcore.notifications import subscription_rows, topics
from cloudcore.notifications.records import Subscription, Topic
from cloudcore.notifications.signing import new_secret, seal_secret
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


def add_webhooks(
    tx: Connection, topic: Topic, endpoints: Sequence[str], keyring: Keyring
) -> list[str]:
    """Subscribe webhooks to a topic, confirmed; return the subscriptions' ids."""
    ids = [uuid7() for _ in endpoints]
    for subscription_id, endpoint in zip(ids, endpoints, strict=True):
        made = Subscription(
            id=subscription_id,
            topic_id=topic.id,
            account_id=topic.account_id,
            protocol="http",
            endpoint=endpoint,
            status="confirmed",
            filter_policy={},
            raw_message_delivery=False,
            delivery_policy={},
            created_at=topic.created_at,
            updated_at=topic.created_at,
            active_since=topic.created_at,
            signing_secret=seal_secret(keyring, subscription_id, new_secret()),
        )
        subscription_rows.add_subscription(tx, made)
    return ids
