"""Settings of an account, for all its repositories. Without a row, the defaults apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, columns_of, given, json_text
from cloudcore.db.statement import Statement, listed, text_list
from registry.metadata.control_tables import registry_settings

_s = registry_settings.c

DEFAULT_UNDELETE_DAYS: Final = 7


class AccountSettings(NamedTuple):
    """An account's settings."""

    undelete_days: int = DEFAULT_UNDELETE_DAYS
    """Days for which deleted images, tags and repositories are restorable; 0: not at all."""
    uncounted_pullers: tuple[str, ...] = ()
    """Patterns of the CRNs of principals whose pulls are not recorded."""
    access_key_login: bool = False
    """True if access keys themselves are credentials of container clients, at ``/v2/token``."""
    updated_at: int | None = None
    """None if the settings were never changed."""


_of_account = columns_of(registry_settings, AccountSettings._fields).where(given(_s.account_id))
_FIND: Final = Statement(_of_account)
_UNCOUNTED: Final = Statement(
    select(_s.account_id, _s.uncounted_pullers).where(_s.account_id.in_(listed("account_ids")))
)
_new = insert(registry_settings).values(
    **bound(("account_id", "undelete_days", "uncounted_pullers", "access_key_login")),
    updated_at=bindparam("now"),
)
_PUT: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["account_id"],
        set_={name: _new.excluded[name] for name in AccountSettings._fields},
    )
)
_ADD_DEFAULTS: Final = Statement(_new.on_conflict_do_nothing())
_LOCK: Final = Statement(_of_account.with_for_update())


def find_settings(tx: Connection, account_id: str) -> AccountSettings:
    """Return the settings of an account."""
    row = tx.row(_FIND, account_id=account_id)
    return _settings(row) if row else AccountSettings()


def uncounted_pullers_of(tx: Connection, account_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Map account ids to patterns of uncounted pullers; accounts without any are left out."""
    rows = tx.rows(_UNCOUNTED, account_ids=text_list(account_ids)) if account_ids else ()
    return {row[0]: _patterns(row[1]) for row in rows if row[1] != "[]"}


def lock_settings(tx: Connection, account_id: str, now: int) -> AccountSettings:
    """Lock the settings of an account until the transaction ends, and return them."""
    tx.execute(_ADD_DEFAULTS, account_id=account_id, **_values(AccountSettings(), now))
    row = tx.row(_LOCK, account_id=account_id)
    assert row is not None
    return _settings(row)


def put_settings(
    tx: Connection, account_id: str, changed: AccountSettings, now: int
) -> AccountSettings:
    """Replace an account's settings, and return them."""
    tx.execute(_PUT, account_id=account_id, **_values(changed, now))
    return find_settings(tx, account_id)


def _values(settings: AccountSettings, now: int) -> dict[str, object]:
    return {
        "undelete_days": settings.undelete_days,
        "uncounted_pullers": json_text(settings.uncounted_pullers),
        "access_key_login": settings.access_key_login,
        "now": now,
    }


def _settings(row: tuple[int, str, bool, int]) -> AccountSettings:
    return AccountSettings(row[0], _patterns(row[1]), bool(row[2]), row[3])


def _patterns(document: str) -> tuple[str, ...]:
    return msgspec.json.decode(document, type=tuple[str, ...])
