"""What the database itself forbids about keys, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from cloudcore.db.base import Connection, ConstraintViolated, Database
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict
from cloudcore.kms import rows
from cloudcore.kms.key import Key
from cloudcore.kms.rows import KEY_ROWS, KeyVersion
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
    KEY_ROWS.add(tx, KEY)
    rows.add_version(tx, VERSION)


def delete_key(tx: Connection) -> None:
    KEY_ROWS.save(tx, replace(KEY, state="pending_deletion", deletion_at=1))
    rows.forget_key(tx, "account", "key", 1)


async def test_a_name_is_unique_among_undeleted_keys(database: Database) -> None:
    def play(tx: Connection) -> None:
        add(tx)
        with pytest.raises(Conflict):
            KEY_ROWS.add(tx, replace(KEY, id="second"))
        KEY_ROWS.add(tx, replace(KEY, id="elsewhere", region="other"))
        rows.erase_versions(tx, "account", "key")
        delete_key(tx)
        KEY_ROWS.add(tx, replace(KEY, id="second"))
        assert KEY_ROWS.find_named(tx, "account", "local", "app") == replace(KEY, id="second")

    await database.write(play)


async def test_an_account_has_one_platform_key(database: Database) -> None:
    def play(tx: Connection) -> None:
        add_account(tx, "account")
        platform = replace(KEY, name="platform", origin="platform")
        KEY_ROWS.add(tx, platform)
        with pytest.raises(Conflict):
            KEY_ROWS.add(tx, replace(platform, id="second", name="another"))
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
            await database.write(KEY_ROWS.add, replace(KEY, **wrong))
    await database.write(KEY_ROWS.add, KEY)


async def test_a_key_with_material_cannot_be_deleted(database: Database) -> None:
    await database.write(add)
    with pytest.raises(ConstraintViolated):
        await database.write(delete_key)


async def test_a_deleted_key_gets_no_material(database: Database) -> None:
    def delete(tx: Connection) -> None:
        add(tx)
        rows.erase_versions(tx, "account", "key")
        delete_key(tx)

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
        pending = replace(
            KEY,
            id="pending",
            name="pending",
            state="pending_deletion",
            deletion_at=5,
            tags={"a": "b"},
        )
        KEY_ROWS.add(tx, pending)
        rows.add_version(tx, VERSION._replace(version=2, created_at=7))
        of, all_states = ("account", "local"), ("", "")
        assert KEY_ROWS.list(tx, *of, all_states, "", 9) == [KEY, pending]
        assert KEY_ROWS.list(tx, *of, all_states, "key", 9) == [pending]
        assert KEY_ROWS.list(tx, *of, ("", "enabled"), "", 9) == [KEY]
        assert KEY_ROWS.list(tx, *of, ("pending", ""), "", 9) == [pending]
        assert KEY_ROWS.list(tx, "account", "elsewhere", all_states, "", 9) == []
        assert KEY_ROWS.count(tx, *of, all_states) == 2
        assert rows.list_versions(tx, "account", "key", "", 9) == [(1, 0), (2, 7)]
        assert rows.list_versions(tx, "account", "key", "1", 9) == [(2, 7)]
        assert rows.count_versions(tx, "account", "key") == 2
        assert rows.find_version(tx, "account", "key", 1) == VERSION
        assert rows.find_version(tx, "other", "key", 1) is None
        assert rows.list_due(tx, 4, 9) == []
        assert rows.list_due(tx, 5, 9) == [("account", "pending")]
        assert rows.list_accounts_without_platform_key(tx, 9) == ["account"]
        rows.erase_versions(tx, "account", "key")
        delete_key(tx)
        assert KEY_ROWS.list(tx, *of, all_states, "", 9) == [pending]
        deleted = replace(KEY, name=None, state="deleted", deletion_at=1, updated_at=1)
        assert KEY_ROWS.list(tx, *of, ("", "deleted"), "", 9) == [deleted]
        assert KEY_ROWS.count(tx, *of, ("", "deleted")) == 1

    await database.write(play)
