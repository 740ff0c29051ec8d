"""Revision 0023 over an install with accounts: each has one platform key after the next start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alembic import command
from sqlalchemy import text

from cloudcore.keyring import create_root_key
from cloudcore.kms.family import KMS
from cloudcore.kms.needs import KmsNeeds
from registry.main import Registry, prepare
from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration
from registry.served import SERVE
from registry.settings import Settings

ACCOUNTS = tuple(f"0189000{number}-0000-7000-8000-000000000000" for number in range(3))
ACCOUNT = text(
    "INSERT INTO accounts (id, handle, status, auto_create_repositories, created_at)"
    " VALUES (:id, :handle, 'active', true, 0)"
)
KEYS = text("SELECT id, account_id, name, state, current_version FROM kms_keys ORDER BY account_id")


def settings_of(url: str, folder: Path) -> Settings:
    return Settings(data=folder, database_url=url, public_url="http://registry.test")


@asynccontextmanager
async def started(settings: Settings) -> AsyncIterator[KmsNeeds]:
    async with Registry(settings, SERVE).open_planes() as (opening, _):
        yield await opening.needs_of(KMS)


async def test_every_account_has_one_platform_key_after_a_start(
    bare_url: str, tmp_path: Path
) -> None:
    settings = settings_of(bare_url, tmp_path / "data")
    await asyncio.to_thread(prepare, settings)
    create_root_key(settings.root_key)
    with migration_connection(bare_url) as connection:
        command.downgrade(configuration(connection), "0021")
        for number, account_id in enumerate(ACCOUNTS):
            connection.execute(ACCOUNT, {"id": account_id, "handle": f"account-{number}"})
    await asyncio.to_thread(migrate, bare_url)
    with migration_connection(bare_url) as connection:
        assert connection.execute(KEYS).all() == []
    async with started(settings), started(settings):  # two workers at once
        pass
    with migration_connection(bare_url) as connection:
        found = connection.execute(KEYS).all()
    assert [tuple(row)[1:] for row in found] == [
        (account_id, "platform", "enabled", 1) for account_id in ACCOUNTS
    ]
    async with started(settings) as keys:
        for key_id, account_id, *_ in found:
            wrapped = await keys.vault.wrap(account_id, key_id, b"data key", b"object")
            opened = await keys.vault.unwrap(account_id, key_id, wrapped, b"object")
            assert opened == b"data key"
    with migration_connection(bare_url) as connection:
        assert connection.execute(KEYS).all() == found
