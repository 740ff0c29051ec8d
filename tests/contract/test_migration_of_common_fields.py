"""Revision 0051 over what is there: it has the fields of every resource, and else what it had."""

from __future__ import annotations

import asyncio

import pytest
from alembic import command
from msgspec import structs
from sqlalchemy.exc import IntegrityError

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.notifications.signing import new_nonce
from cloudcore.notifications.subscribing import pending
from cloudcore.notifications.subscription import Subscription
from cloudcore.notifications.tables import SUBSCRIPTION_ROWS
from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.databases import opened
from tests.kms_world import ACME, KEYRING, add_account
from tests.topics import add_topics, add_webhooks

BEFORE = "0048"


def go_back_and_forth(url: str) -> None:
    with migration_connection(url) as connection:
        command.downgrade(configuration(connection), BEFORE)
    migrate(url)


async def test_subscriptions_are_in_the_region_of_their_topics(bare_url: str) -> None:
    await asyncio.to_thread(migrate, bare_url)

    def subscribe(tx: Connection) -> list[Subscription | None]:
        ids = add_webhooks(tx, topic, ["http://a.test/", "http://b.test/"], KEYRING)
        confirmed = SUBSCRIPTION_ROWS.lock(tx, ACME, ids[0])
        mail = structs.replace(
            confirmed, id=uuid7(), protocol="email", endpoint="a@b.test", signing_secret=None
        )
        SUBSCRIPTION_ROWS.add(tx, pending(mail, new_nonce(), "token", 7))
        return [SUBSCRIPTION_ROWS.find(tx, ACME, each) for each in (*ids, mail.id)]

    async with opened(bare_url) as database:
        await database.write(add_account, ACME, "acme")
        (topic,) = await add_topics(database, "acme", "news")
        made = await database.write(subscribe)
    await asyncio.to_thread(go_back_and_forth, bare_url)
    async with opened(bare_url) as database:
        for each in made:
            assert each is not None
            assert await database.read(SUBSCRIPTION_ROWS.find, ACME, each.id) == each
    with migration_connection(bare_url) as connection, pytest.raises(IntegrityError):
        connection.exec_driver_sql("UPDATE subscriptions SET region = NULL")
