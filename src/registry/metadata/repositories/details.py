"""Repositories with all their settings: list, update and soft-delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import and_, bindparam, case, exists, func, literal_column, select

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ONE, bound, count, first, given
from cloudcore.db.statement import Statement, paged
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.encryption_bindings import (
    DEFAULT_KEY_ID,
    OF_PLATFORM,
    BindingSource,
    BoundKey,
)
from registry.metadata.repositories.folders import count_in, take_from_folders
from registry.metadata.repositories.repository import NewRepository, Repository
from registry.metadata.tables import (
    LAST_CHARACTER,
    encryption_bindings,
    manifests,
    repositories,
    repository_blobs,
    resource_policies,
    uploads,
)
from registry.metadata.tags.deleted import SoftDeletion

_r = repositories.c


class RepositoryDetails(NamedTuple):
    """A live repository with its settings, counters and times."""

    id: str
    account_id: str
    handle: str
    name: str
    description: str | None
    tags: Mapping[str, str]
    tag_mutability: str
    immutable_tag_exclusions: Sequence[str]
    visibility: str
    source: str
    image_count: int
    tag_count: int
    size_bytes: int
    last_pushed_at: int | None
    last_pulled_at: int | None
    created_at: int
    updated_at: int
    has_plain_blobs: bool
    key_source: BindingSource
    key: BoundKey | None
    """The key that seals new blobs, or None if the account has no keys."""


class NameRange(NamedTuple):
    """A range of repository names from `first` to `last`, both included."""

    first: str
    last: str

    @property
    def folder(self) -> str | None:
        """Return the folder that contains exactly the names in this range, or None."""
        is_folder = self.last == self.first + LAST_CHARACTER and (
            not self.first or self.first[-1] == "/"
        )
        return self.first if is_folder else None

    @classmethod
    def of(cls, name: str | None, prefix: str | None) -> NameRange:
        """Return the range of names that begin with `prefix` and equal `name`; None admits all."""
        if name is None:
            return cls(prefix or "", (prefix or "") + LAST_CHARACTER)
        return cls(name, name if name.startswith(prefix or "") else "")


LAST_PUSHED_AT = first(
    select(manifests.c.pushed_at)
    .where(manifests.c.repository_id == _r.id)
    .order_by(manifests.c.id.desc())  # ids sort by creation
    .correlate(repositories)
).scalar_subquery()
LAST_PULLED_AT = first(
    select(manifests.c.last_pulled_at)
    .where(
        manifests.c.repository_id == _r.id,
        manifests.c.last_pulled_at.is_not(None),  # so that the partial index applies
    )
    .order_by(manifests.c.last_pulled_at.desc())
    .correlate(repositories)
).scalar_subquery()
_HAS_PLAIN_BLOBS: Final = exists(
    select(ONE)
    .select_from(repository_blobs)
    .where(repository_blobs.c.repository_id == _r.id, repository_blobs.c.kms_key_id.is_(None))
    .correlate(repositories)
)
_own: Final = encryption_bindings.alias("own_binding")
_KEY_SOURCE: Final = case(
    (_own.c.id.is_not(None), literal_column("'repository'")),
    (DEFAULT_KEY_ID.is_not(None), literal_column("'account'")),
    else_=literal_column("'platform'"),
)


_COLUMNS: Final = (
    select(
        _r.id,
        _r.account_id,
        accounts.c.handle,
        _r.name,
        _r.description,
        _r.tags,
        _r.tag_mutability,
        _r.immutable_tag_exclusions,
        resource_policies.c.visibility,
        _r.source,
        _r.image_count,
        _r.tag_count,
        _r.size_bytes,
        LAST_PUSHED_AT,
        LAST_PULLED_AT,
        _r.created_at,
        _r.updated_at,
        _HAS_PLAIN_BLOBS,
        _KEY_SOURCE,
        *(kms_keys.c[name] for name in BoundKey._fields),
    )
    .join(accounts, accounts.c.id == _r.account_id)
    .outerjoin(resource_policies, resource_policies.c.repository_id == _r.id)
    .outerjoin(_own, and_(_own.c.repository_id == _r.id, _own.c.ended_at.is_(None)))
    .outerjoin(
        kms_keys, kms_keys.c.id == func.coalesce(_own.c.kms_key_id, DEFAULT_KEY_ID, OF_PLATFORM)
    )
    .where(given(_r.account_id), _r.deleted_at.is_(None))
)
_IN_RANGE: Final = and_(_r.name >= bindparam("first"), _r.name <= bindparam("last"))
_FIND: Final = Statement(_COLUMNS.where(given(_r.id)))
_LIST: Final = paged(_COLUMNS.where(_IN_RANGE).order_by(_r.name))
_COUNT: Final = Statement(
    select(func.count())
    .select_from(repositories)
    .where(given(_r.account_id), _r.deleted_at.is_(None), _IN_RANGE)
)
_UPDATE: Final = Statement(
    repositories.update()
    .where(_r.id == bindparam("repository_id"))
    .values(bound(NewRepository._fields[1:]) | {"updated_at": bindparam("now")})
)
_DELETE: Final = Statement(
    repositories.update()
    .where(_r.id == bindparam("repository_id"))
    .values(
        deleted_at=bindparam("now"),
        deleted_by=bindparam("principal"),
        deleted_by_source=bindparam("source"),
        restorable_until=bindparam("restorable_until"),
        updated_at=bindparam("now"),
    )
)
_END_UPLOADS: Final = Statement(
    uploads.update()
    .where(uploads.c.repository_id == bindparam("repository"))
    .values(expires_at=bindparam("now"))
)


def find_repository_details(
    tx: Connection, account_id: str, repository_id: str
) -> RepositoryDetails | None:
    """Return a live repository of this account, or None."""
    row = tx.row(_FIND, account_id=account_id, id=repository_id)
    return _details(row) if row else None


def list_repository_details(
    tx: Connection, account_id: str, names: NameRange, after: str, limit: int
) -> list[RepositoryDetails]:
    """Return up to `limit` live repositories in a range, after the name `after`, sorted by name."""
    # One lower bound, so that the index range begins where the page does. No name sorts between
    # `after` and `after` followed by a control character.
    first = after + "\x01" if after else names.first
    rows = tx.rows(_LIST, account_id=account_id, first=first, last=names.last, limit=limit)
    return [_details(row) for row in rows]


def count_repository_details(tx: Connection, account_id: str, names: NameRange) -> int:
    """Return the number of live repositories of this account with names in the range.

    For a whole account or folder this reads one row; otherwise it scans the range.
    """
    if names.folder is not None:
        return count_in(tx, account_id, names.folder)
    return count(tx, _COUNT, account_id=account_id, **names._asdict())


def store_repository_settings(
    tx: Connection, repository_id: str, changed: NewRepository, now: int
) -> None:
    """Update a repository's settings, except its name."""
    values = changed.values()
    del values["name"]
    tx.execute(_UPDATE, repository_id=repository_id, **values, now=now)


def mark_deleted(tx: Connection, repository: Repository, deletion: SoftDeletion) -> None:
    """Soft-delete a repository and expire its uploads; only restore and purge still see it."""
    tx.execute(_DELETE, repository_id=repository.id, **deletion._asdict())
    tx.execute(_END_UPLOADS, repository=repository.id, now=deletion.now)
    take_from_folders(tx, repository.account_id, repository.name)


def _details(row: Row) -> RepositoryDetails:
    own, (has_plain, source, *key) = row[:17], row[17:]
    bound = None if key[0] is None else BoundKey(*key)
    details = RepositoryDetails(*(*own, bool(has_plain), source, bound))
    return details._replace(
        tags=msgspec.json.decode(row[5], type=dict[str, str]),
        immutable_tag_exclusions=msgspec.json.decode(row[7], type=list[str]),
        visibility=row[8] or "private",
    )
