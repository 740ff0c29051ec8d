"""Bindings of repositories and accounts to the KMS keys under which blobs are written.

A repository uses its own binding, else its account's default, else the account's platform key. A
replaced or deleted binding gets an `ended_at`; its row stays as history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Literal, NamedTuple

from sqlalchemy import and_, bindparam, case, func, literal_column, select

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, count, given
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.kms.key import KEY, Key, KeyState
from cloudcore.kms.rows import kms_keys
from registry.metadata.tables import encryption_bindings, repositories

BindingSource = Literal["repository", "account", "platform"]
"""The level whose binding selects the key that a repository writes under."""

_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""No id sorts after it, in any collation."""

_b = encryption_bindings.c
_k = kms_keys.c
_r = repositories.c
_own = encryption_bindings.alias("own")


class EffectiveKey(NamedTuple):
    """The KMS key that a repository now writes under."""

    kms_key_id: str
    state: KeyState
    source: BindingSource
    current_version: int
    """The version of the key's material."""


class SharedKey(NamedTuple):
    """A KMS key, and the repositories that write under it."""

    kms_key_id: str
    state: KeyState
    repository_ids: Sequence[str]


class BoundKey(NamedTuple):
    """The key of a binding, in any state."""

    id: str
    account_id: str
    region: str
    name: str | None
    """None if the key was deleted."""
    state: KeyState

    @property
    def crn(self) -> str | None:
        """Return the key's CRN, or None if the key was deleted."""
        return None if self.name is None else KEY.crn(self.region, self.account_id, self.name)


class Binding(NamedTuple):
    """A binding of an account or a repository to a key, active or ended."""

    id: str | None
    """None for the platform key, which nobody has bound."""
    repository_id: str | None
    """None for the account's default."""
    created_at: int | None
    ended_at: int | None
    """None while the binding is active."""
    key: BoundKey | Key | None
    """None if the account has no keys, so its blobs are not encrypted."""
    is_changed: bool = False
    """True if the current request has made this binding."""

    @property
    def source(self) -> BindingSource:
        """Return the level that the binding belongs to: repository, account or platform."""
        if self.id is None:
            return "platform"
        return "account" if self.repository_id is None else "repository"


_IS_ACTIVE: Final = _b.ended_at.is_(None)
_IS_DEFAULT: Final = and_(given(_b.account_id), _b.repository_id.is_(None))
_IS_REPOSITORYS: Final = given(_b.account_id, _b.repository_id)
_OF_REPOSITORY: Final = (
    select(_b.kms_key_id).where(given(_b.repository_id), _IS_ACTIVE).scalar_subquery()
)
DEFAULT_KEY_ID: Final = select(_b.kms_key_id).where(_IS_DEFAULT, _IS_ACTIVE).scalar_subquery()
"""The id of the key that is the default of ``:account_id``, or null."""
_platform: Final = kms_keys.alias("platform")
OF_PLATFORM: Final = (
    select(_platform.c.id)
    .where(given(_platform.c.account_id), _platform.c.origin == literal_column("'platform'"))
    .scalar_subquery()
)
"""The id of the platform key of ``:account_id``, or null if the account has none yet."""
EFFECTIVE_ID: Final = func.coalesce(_OF_REPOSITORY, DEFAULT_KEY_ID, OF_PLATFORM)
"""The id of the key that the repository ``:repository_id`` of ``:account_id`` writes under."""
_EFFECTIVE: Final = Statement(
    select(
        _k.id,
        _k.state,
        case(
            (_OF_REPOSITORY.is_not(None), literal_column("'repository'")),
            (DEFAULT_KEY_ID.is_not(None), literal_column("'account'")),
            else_=literal_column("'platform'"),
        ),
        _k.current_version,
    ).where(given(_k.account_id), _k.id == EFFECTIVE_ID)
)
_EFFECTIVE_OF_MANY: Final = Statement(
    select(_r.id, _k.id, _k.state)
    .select_from(repositories)
    .outerjoin(_own, and_(_own.c.repository_id == _r.id, _own.c.ended_at.is_(None)))
    .join(
        kms_keys,
        and_(
            _k.account_id == _r.account_id,
            _k.id == func.coalesce(_own.c.kms_key_id, DEFAULT_KEY_ID, OF_PLATFORM),
        ),
    )
    .where(given(_r.account_id), _r.id.in_(listed("ids")))
    .order_by(_k.id, _r.id)
)


_BINDINGS: Final = select(
    *(_b.id, _b.repository_id, _b.created_at, _b.ended_at), *(_k[name] for name in BoundKey._fields)
).join(kms_keys, _k.id == _b.kms_key_id)
_SCOPES: Final = {"account": _IS_DEFAULT, "repository": _IS_REPOSITORYS}
_FIND: Final = {
    scope: Statement(_BINDINGS.where(is_of, _IS_ACTIVE)) for scope, is_of in _SCOPES.items()
}
_LIST: Final = {
    scope: paged(_BINDINGS.where(is_of, _b.id < bindparam("before")).order_by(_b.id.desc()))
    for scope, is_of in _SCOPES.items()
}
_COUNT: Final = {
    scope: Statement(select(func.count()).select_from(encryption_bindings).where(is_of))
    for scope, is_of in _SCOPES.items()
}
_END: Final = {
    scope: Statement(
        encryption_bindings.update().where(is_of, _IS_ACTIVE).values(ended_at=bindparam("now"))
    )
    for scope, is_of in _SCOPES.items()
}
_ADD: Final = Statement(
    encryption_bindings.insert().values(
        bound(("id", "account_id", "repository_id", "kms_key_id", "created_at"))
    )
)


def effective_key(tx: Connection, account_id: str, repository_id: str) -> EffectiveKey:
    """Return the key that a repository of this account writes under, in any state."""
    row = tx.row(_EFFECTIVE, account_id=account_id, repository_id=repository_id)
    assert row is not None, "each account has a platform key"
    return EffectiveKey(*row)


def effective_keys(
    tx: Connection, account_id: str, repository_ids: Collection[str]
) -> list[SharedKey]:
    """Return the KMS keys, in any state, that these repositories of an account write under."""
    ids = sorted(repository_ids)
    if not ids:
        return []
    found: dict[tuple[str, KeyState], list[str]] = {}
    rows = tx.rows(_EFFECTIVE_OF_MANY, account_id=account_id, ids=text_list(ids))
    for repository_id, key_id, state in rows:
        found.setdefault((key_id, state), []).append(repository_id)
    return [SharedKey(*key, shared_by) for key, shared_by in found.items()]


def find_binding(tx: Connection, account_id: str, repository_id: str | None) -> Binding | None:
    """Return the active binding of a repository, or None if there is none.

    `repository_id` is None for the account's default.
    """
    scope, ids = _scope(account_id, repository_id)
    row = tx.row(_FIND[scope], **ids)
    return None if row is None else _binding(row)


def list_bindings(
    tx: Connection, account_id: str, repository_id: str | None, before: str, limit: int
) -> list[Binding]:
    """Return up to `limit` bindings of a repository, active and ended, newest first.

    `repository_id` is None for the account's default. `before` is the last id of the previous page,
    or empty.
    """
    scope, ids = _scope(account_id, repository_id)
    rows = tx.rows(_LIST[scope], **ids, before=before or _LAST, limit=limit)
    return [_binding(row) for row in rows]


def count_bindings(tx: Connection, account_id: str, repository_id: str | None) -> int:
    """Count the bindings that `list_bindings` lists."""
    scope, ids = _scope(account_id, repository_id)
    return count(tx, _COUNT[scope], **ids)


def end_binding(tx: Connection, account_id: str, repository_id: str | None, now: int) -> bool:
    """End the active binding of a repository; return False if there is none.

    `repository_id` is None for the account's default.
    """
    scope, ids = _scope(account_id, repository_id)
    return tx.execute(_END[scope], **ids, now=now) == 1


def add_binding(
    tx: Connection,
    binding_id: str,
    account_id: str,
    repository_id: str | None,
    kms_key_id: str,
    now: int,
) -> None:
    """Insert an active binding; the caller has ended the previous one.

    `repository_id` is None for the account's default.
    """
    tx.execute(
        _ADD,
        id=binding_id,
        account_id=account_id,
        repository_id=repository_id,
        kms_key_id=kms_key_id,
        created_at=now,
    )


def _scope(account_id: str, repository_id: str | None) -> tuple[str, dict[str, str]]:
    if repository_id is None:
        return "account", {"account_id": account_id}
    return "repository", {"account_id": account_id, "repository_id": repository_id}


def _binding(row: Row) -> Binding:
    return Binding(*(*row[:4], BoundKey(*row[4:])))
