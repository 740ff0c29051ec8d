"""Settings of an account for all its certificates; without a row, the defaults apply."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.certificate.tables import certificate_settings
from cloudcore.db.base import Connection
from cloudcore.db.rows import bound
from cloudcore.db.statement import Statement

_s = certificate_settings.c


class CertificateSettings(NamedTuple):
    """An account's settings."""

    private_key_export: bool = True
    """Its private keys that are made here may be exported."""
    updated_at: int | None = None
    """None if they were never changed."""


_FIND: Final = Statement(
    select(_s.private_key_export, _s.updated_at).where(_s.account_id == bindparam("account_id"))
)
_new = insert(certificate_settings).values(
    bound(("account_id", "private_key_export", "updated_at"))
)
_PUT: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["account_id"],
        set_={
            "private_key_export": _new.excluded.private_key_export,
            "updated_at": _new.excluded.updated_at,
        },
    )
)


def find_settings(tx: Connection, account_id: str) -> CertificateSettings:
    """Return the settings of an account."""
    row = tx.row(_FIND, account_id=account_id)
    return CertificateSettings(bool(row[0]), row[1]) if row else CertificateSettings()


def put_settings(
    tx: Connection, account_id: str, *, private_key_export: bool, now: int
) -> CertificateSettings:
    """Replace the settings of an account, and return them."""
    changed = CertificateSettings(private_key_export, now)
    tx.execute(_PUT, account_id=account_id, **changed._asdict())
    return changed
