"""Bindings: under which KMS key a repository writes its blobs.

A repository's own binding counts, else the default of its account, else the account's platform
key. A binding that is replaced or deleted ends; it stays as history.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from sqlalchemy import bindparam, case, func, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.kms.specs import KeyState
from cloudcore.kms.tables import kms_keys
from registry.metadata.tables import encryption_bindings

BindingSource = Literal["repository", "account", "platform"]
"""What decides which key a repository writes under."""

_b = encryption_bindings.c
_k = kms_keys.c


class EffectiveKey(NamedTuple):
    """The key that a repository writes under now."""

    kms_key_id: str
    state: KeyState
    source: BindingSource


_OF_REPOSITORY: Final = (
    select(_b.kms_key_id)
    .where(_b.repository_id == bindparam("repository_id"), _b.ended_at.is_(None))
    .scalar_subquery()
)
_OF_ACCOUNT: Final = (
    select(_b.kms_key_id)
    .where(
        _b.account_id == bindparam("account_id"),
        _b.repository_id.is_(None),
        _b.ended_at.is_(None),
    )
    .scalar_subquery()
)
_platform: Final = kms_keys.alias("platform")
_OF_PLATFORM: Final = (
    select(_platform.c.id)
    .where(
        _platform.c.account_id == bindparam("account_id"),
        _platform.c.origin == literal_column("'platform'"),
    )
    .scalar_subquery()
)
_EFFECTIVE: Final = Statement(
    select(
        _k.id,
        _k.state,
        case(
            (_OF_REPOSITORY.is_not(None), literal_column("'repository'")),
            (_OF_ACCOUNT.is_not(None), literal_column("'account'")),
            else_=literal_column("'platform'"),
        ),
    ).where(
        _k.account_id == bindparam("account_id"),
        _k.id == func.coalesce(_OF_REPOSITORY, _OF_ACCOUNT, _OF_PLATFORM),
    )
)


def effective_key(tx: Connection, account_id: str, repository_id: str) -> EffectiveKey:
    """Return the key that a repository of this account writes under, in whatever state."""
    row = tx.row(_EFFECTIVE, account_id=account_id, repository_id=repository_id)
    assert row is not None, "each account has a platform key"
    return EffectiveKey(*row)
