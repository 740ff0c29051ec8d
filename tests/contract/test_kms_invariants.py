"""What the database itself forbids about keys, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from cloudcore.db.base import Connection, ConstraintViolated, Database
from cloudcore.db.statement import Statement
from cloudcore.kms import rows
from cloudcore.kms.rows import Key, KeyVersion
from tests.databases import on_both_databases
from tests.kms_world import add_account

pytestmark = on_both_databases

KEY = Key(
    id="key",
    account_id="account",
    region="local",
    name="app",
    description="",
    tags={},
    key_spec="aes-256",
    key_usage="encrypt_decrypt",
    state="enabled",
    origin="customer",
    current_version=1,
    deletion_at=None,
    created_at=0,
    updated_at=0,
)
VERSION = KeyVersion("key", 1, "app", "account", "embedded", b"wrapped", 0)


def add(tx: Connection) -> None:
    add_account(tx, "account")
    assert rows.add_key(tx, KEY)
    rows.add_version(tx, VERSION)


async def test_a_name_is_unique_among_undeleted_keys(database: Database) -> None:
    def play(tx: Connection) -> None:
        add(tx)
        assert not rows.add_key(tx, KEY._replace(id="second"))
        assert rows.add_key(tx, KEY._replace(id="elsewhere", region="other"))
        rows.erase_versions(tx, "account", "key")
        rows.save_key(tx, KEY._replace(name=None, state="deleted", deletion_at=1))
        assert rows.add_key(tx, KEY._replace(id="second"))
        assert rows.find_key_named(tx, "account", "local", "app") == KEY._replace(id="second")

    await database.write(play)


async def test_an_account_has_one_platform_key(database: Database) -> None:
    def play(tx: Connection) -> None:
        add_account(tx, "account")
        platform = KEY._replace(name="platform", origin="platform")
        assert rows.add_key(tx, platform)
        assert not rows.add_key(tx, platform._replace(id="second", name="another"))
        assert rows.find_platform_key(tx, "account") == platform

    await database.write(play)


WRONG: dict[str, dict[str, Any]] = {
    "an unknown state": {"state": "paused"},
    "an unknown spec": {"key_spec": "des"},
    "a deleted key with a name": {"state": "deleted", "deletion_at": 1},
    "a nameless key that is not deleted": {"name": None},
    "a pending deletion without a time": {"state": "pending_deletion"},
    "a time without a deletion": {"deletion_at": 1},
    "a disabled platform key": {"origin": "platform", "state": "disabled"},
    "no version": {"current_version": 0},
    "no such account": {"account_id": "nobody"},
}


async def test_a_wrong_row_is_refused(database: Database) -> None:
    await database.write(add_account, "account")
    for wrong in WRONG.values():
        with pytest.raises(ConstraintViolated):
            await database.write(rows.add_key, KEY._replace(**wrong))
    assert await database.write(rows.add_key, KEY)


async def test_a_key_with_material_cannot_be_deleted(database: Database) -> None:
    await database.write(add)
    with pytest.raises(ConstraintViolated):
        await database.write(rows.save_key, KEY._replace(name=None, state="deleted", deletion_at=1))


async def test_a_deleted_key_gets_no_material(database: Database) -> None:
    def delete(tx: Connection) -> None:
        add(tx)
        rows.erase_versions(tx, "account", "key")
        rows.save_key(tx, KEY._replace(name=None, state="deleted", deletion_at=1))

    await database.write(delete)
    with pytest.raises(ConstraintViolated):
        await database.write(rows.add_version, VERSION)


async def test_a_version_is_of_its_key(database: Database) -> None:
    await database.write(add)
    foreign: list[dict[str, Any]] = [
        {"account_id": "other"},
        {"key_name": "other"},
        {"provider": "elsewhere"},
        {"version": 0},
        {"version": 1},
    ]
    for wrong in foreign:
        with pytest.raises(ConstraintViolated):
            await database.write(rows.add_version, VERSION._replace(**{"version": 2, **wrong}))
    await database.write(rows.add_version, VERSION._replace(version=2))


async def test_an_account_with_keys_stays(database: Database) -> None:
    await database.write(add)
    remove = Statement(text("DELETE FROM accounts"))
    with pytest.raises(ConstraintViolated):
        await database.write(lambda tx: tx.execute(remove))


async def test_keys_are_listed_by_state_and_versions_by_number(database: Database) -> None:
    def play(tx: Connection) -> None:
        add(tx)
        pending = KEY._replace(
            id="pending", name="pending", state="pending_deletion", deletion_at=5, tags={"a": "b"}
        )
        assert rows.add_key(tx, pending)
        rows.add_version(tx, VERSION._replace(version=2, created_at=7))
        both = rows.text_of("enabled", "pending_deletion")
        assert rows.list_keys(tx, "account", "local", both, "", 9) == [KEY, pending]
        assert rows.list_keys(tx, "account", "local", both, "key", 9) == [pending]
        assert rows.list_keys(tx, "account", "local", rows.text_of("enabled"), "", 9) == [KEY]
        assert rows.list_keys(tx, "account", "elsewhere", both, "", 9) == []
        assert rows.count_keys(tx, "account", "local", both) == 2
        assert rows.list_versions(tx, "account", "key", "", 9) == [(1, 0), (2, 7)]
        assert rows.list_versions(tx, "account", "key", "1", 9) == [(2, 7)]
        assert rows.count_versions(tx, "account", "key") == 2
        assert rows.find_version(tx, "account", "key", 1) == VERSION
        assert rows.find_version(tx, "other", "key", 1) is None
        assert rows.list_due(tx, 4, 9) == []
        assert rows.list_due(tx, 5, 9) == [("account", "pending")]
        assert rows.list_accounts_without_platform_key(tx, 9) == ["account"]

    await database.write(play)
