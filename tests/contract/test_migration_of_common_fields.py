"""Revision 0051 over what is there: it has the fields of every resource, and else what it had."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from alembic import command
from msgspec import structs
from sqlalchemy.exc import IntegrityError

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.notifications.signing import new_nonce
from cloudcore.notifications.subscribing import pending
from cloudcore.notifications.subscriptions import SUBSCRIPTION_ROWS
from cloudcore.notifications.topic import Subscription
from cloudcore.storage.bucket_rows import held_by_bucket
from cloudcore.storage.buckets import BUCKETS
from cloudcore.storage.tables import BUCKET_ROWS
from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from tests.databases import opened
from tests.kms_world import ACME, KEYRING, add_account
from tests.storage_world import open_storage_world
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


async def test_buckets_changed_last_when_they_were_created(bare_url: str, tmp_path: Path) -> None:
    await asyncio.to_thread(migrate, bare_url)
    async with opened(bare_url) as database, open_storage_world(database, tmp_path) as world:
        made = await world.make("photos")
        await world.put(made, "a", b"kept")
        later = made.created_at + 5
        changed = await database.write(BUCKETS.update, made, {"cors": "[]"}, later)
        assert changed.updated_at == later
        held = await database.read(held_by_bucket, ACME, made.id)
    await asyncio.to_thread(go_back_and_forth, bare_url)
    async with opened(bare_url) as database:
        found = await database.read(BUCKET_ROWS.find, ACME, made.id)
        assert found == structs.replace(changed, updated_at=made.created_at)
        assert await database.read(held_by_bucket, ACME, made.id) == held
    with migration_connection(bare_url) as connection, pytest.raises(IntegrityError):
        connection.exec_driver_sql("UPDATE storage_buckets SET updated_at = NULL")
