"""Accounts and their live repositories: find, insert, lock, count and list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Select, and_, bindparam, exists, literal_column, select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, find_one, given
from cloudcore.db.statement import Statement, listed, page_planned_once, text_list, unseen
from cloudcore.identity.tables import accounts
from cloudcore.quotas.limits import QuotaUse, limit_query
from registry.metadata.event_rules import EVENT_RULES
from registry.metadata.quotas import check_added, read_use, use_of
from registry.metadata.repositories.folders import add_to_folders
from registry.metadata.repositories.policies import RepositoryAccess
from registry.metadata.tables import repositories, resource_policies
from registry.quotas import IMAGES, REPOSITORIES, TAGS

_r = repositories.c

PULL_THROUGH_CACHE: Final = "pull_through_cache"
"""The source of a repository that the pull-through cache fills."""


class NewRepository(NamedTuple):
    """The settings of a repository that its owner chooses; `name` cannot change later."""

    name: str
    description: str | None
    tags: Mapping[str, str]
    tag_mutability: str
    immutable_tag_exclusions: Sequence[str]

    def values(self) -> dict[str, object]:
        """Map column names to the values of these settings."""
        encode = msgspec.json.encode
        tags, exclusions = encode(self.tags), encode(self.immutable_tag_exclusions)
        documents = {"tags": tags.decode(), "immutable_tag_exclusions": exclusions.decode()}
        return self._asdict() | documents


IS_NAMED: Final = and_(given(accounts.c.handle, _r.name), _r.deleted_at.is_(None))
"""The condition for the live repository ``:name`` of the account ``:handle``."""


def of_named(*columns: ColumnElement[Any]) -> Select[Any]:
    """Build a query for columns of the live repository ``:name`` of the account ``:handle``."""
    return select(*columns).join(accounts, accounts.c.id == _r.account_id).where(IS_NAMED)


ID_OF_NAMED: Final = of_named(_r.id).scalar_subquery()
"""The id of the live repository ``:name`` of the account ``:handle``, as a subquery."""
_FIND_ACCOUNT: Final = Statement(
    select(accounts.c.id, accounts.c.handle, accounts.c.auto_create_repositories).where(
        given(accounts.c.handle), accounts.c.status == text("'active'")
    )
)
_ADD_ACCOUNT: Final = Statement(
    insert(accounts)
    .values(
        **bound(("id", "handle", "auto_create_repositories")),
        status=text("'active'"),
        created_at=bindparam("now"),
    )
    .on_conflict_do_nothing()
)
_REPOSITORY_COLUMNS: Final = (
    _r.id,
    _r.account_id,
    _r.name,
    _r.tag_mutability,
    _r.immutable_tag_exclusions,
    exists().where(EVENT_RULES.table.c.account_id == _r.account_id),
    _r.source,
    _r.is_sparse,
)
"""The columns that `_repository_of` reads."""
_LOCK_ALL: Final = Statement(
    select(_r.id).where(_r.id.in_(listed("ids"))).order_by(_r.id).with_for_update(key_share=True)
)
_IS_LIVE: Final = Statement(select(_r.id).where(given(_r.id), _r.deleted_at.is_(None)))
_ADD: Final = Statement(
    insert(repositories)
    .values(
        **bound(("id", "account_id", *NewRepository._fields, "source")),
        created_at=bindparam("now"),
        updated_at=bindparam("now"),
    )
    .on_conflict_do_nothing(
        index_elements=["account_id", "name"], index_where=_r.deleted_at.is_(None)
    )
    .returning(limit_query(REPOSITORIES))
)
_COUNT: Final = (
    repositories.update()
    .where(_r.id == bindparam("repository_id"))
    .values(
        image_count=_r.image_count + bindparam("images"),
        tag_count=_r.tag_count + bindparam("tags"),
        tagged_image_count=_r.tagged_image_count + bindparam("tagged_images"),
        size_bytes=_r.size_bytes + bindparam("size"),
        deleted_image_count=_r.deleted_image_count + bindparam("deleted_images"),
        deleted_tag_count=_r.deleted_tag_count + bindparam("deleted_tags"),
        revision=_r.revision + text("1"),
        updated_at=bindparam("now"),
    )
)
# With the table's name: in RETURNING on SQLite, SQLAlchemy leaves it out, also in subqueries.
_OWNER: Final[ColumnElement[str]] = literal_column("repositories.account_id")
_COUNT_FEWER: Final = Statement(_COUNT)
_COUNT_MORE: Final = Statement(
    _COUNT.returning(_r.account_id, limit_query(IMAGES, _OWNER), limit_query(TAGS, _OWNER))
)
_SET_SPARSE: Final = Statement(
    repositories.update().where(_r.id == bindparam("repository_id")).values(is_sparse=text("true"))
)
_REVISION: Final = Statement(of_named(_r.id, _r.account_id, _r.revision, _r.updated_at))
_LIST: Final = Statement(
    page_planned_once(
        select(_r.name)
        .where(
            # No join: PostgreSQL would sort all the names behind it.
            _r.account_id
            == select(accounts.c.id).where(given(accounts.c.handle)).scalar_subquery(),
            _r.deleted_at.is_(None),
            _r.name > unseen("after", _r.name.type),
        )
        .order_by(_r.name)
    )
)


class RegistryAccount(NamedTuple):
    """An account: the unit of isolation, named in image references by its handle."""

    id: str
    handle: str
    auto_create_repositories: bool


class Repository(NamedTuple):
    """The columns of a live repository that pushes need."""

    id: str
    account_id: str
    name: str
    is_immutable: bool
    immutable_tag_exclusions: tuple[str, ...]
    has_event_rules: bool
    """True if the account has an event rule, even one for other repositories."""
    is_cached: bool = False
    """True if the pull-through cache fills the repository, or did until its rule was deleted."""
    is_sparse: bool = False
    """True if a child of an index in the repository was ever deleted by force."""

    @property
    def may_lack_children(self) -> bool:
        """Return True if an index may list a manifest that this repository does not have."""
        return self.is_cached or self.is_sparse


class Revision(NamedTuple):
    """The revision of a repository's tags and images; each change of them increments it."""

    repository_id: str
    account_id: str
    number: int
    changed_at: int
    """When the number was assigned. If the database loses its last commits in a failover, their
    numbers are assigned again, but with later times."""


class Counts(NamedTuple):
    """Differences to add to a repository's counters; may be negative."""

    images: int = 0
    tags: int = 0
    tagged_images: int = 0
    """Images that have at least one tag."""
    size: int = 0
    deleted_images: int = 0
    """The number of tombstones, expired ones included."""
    deleted_tags: int = 0
    """Deleted tags whose image exists, expired ones included."""


_FIND: Final = Statement(of_named(*_REPOSITORY_COLUMNS))
_FIND_WITH_USE: Final = Statement(of_named(*_REPOSITORY_COLUMNS, *use_of(_r.account_id)))
_LOCK: Final = Statement(
    select(*_REPOSITORY_COLUMNS)
    .where(_r.deleted_at.is_(None), given(_r.id))
    .with_for_update(key_share=True)
)


def find_account(tx: Connection, handle: str) -> RegistryAccount | None:
    """Return the active account with this handle, or None."""
    row = tx.row(_FIND_ACCOUNT, handle=handle)
    return RegistryAccount(row[0], row[1], bool(row[2])) if row else None


def add_account(tx: Connection, account_id: str, handle: str, now: int) -> None:
    """Insert an account; do nothing if one has this handle."""
    values = {"id": account_id, "handle": handle, "auto_create_repositories": True}
    tx.execute(_ADD_ACCOUNT, **values, now=now)


def find_repository(tx: Connection, handle: str, name: str) -> Repository | None:
    """Return the live repository with this name, or None."""
    row = tx.row(_FIND, handle=handle, name=name)
    return _repository_of(row) if row else None


def find_with_use(
    tx: Connection, handle: str, name: str
) -> tuple[Repository, QuotaUse | None] | None:
    """Like `find_repository`; also return the account's stored bytes and limit (see `read_use`)."""
    row = tx.row(_FIND_WITH_USE, handle=handle, name=name)
    return None if row is None else (_repository_of(row), read_use(row[-2:]))


def find_revision(tx: Connection, handle: str, name: str) -> Revision | None:
    """Return the revision of the live repository with this name, or None."""
    return find_one(tx, Revision, _REVISION, handle=handle, name=name)


def lock_repository(tx: Connection, repository_id: str) -> Repository | None:
    """Lock and return a live repository, or None; the lock ends with the transaction.

    Every change of a repository's content locks it first, so that counters never race, and what the
    change has read stays true. Without the lock, two concurrent pushes could both find an immutable
    tag absent and both set it. SQLite needs no lock, since one transaction writes at a time.
    """
    row = tx.row(_LOCK, id=repository_id)
    return _repository_of(row) if row else None


def lock_repositories(tx: Connection, ids: Iterable[str]) -> None:
    """Lock these repositories, live or deleted, until the transaction ends."""
    tx.rows(_LOCK_ALL, ids=text_list(sorted(ids)))


def is_live(tx: Connection, repository_id: str) -> bool:
    """Return True if the repository is live."""
    return tx.row(_IS_LIVE, id=repository_id) is not None


def add_repository(
    tx: Connection,
    repository_id: str,
    account_id: str,
    new: NewRepository,
    now: int,
    *,
    source: str = "user",
) -> bool:
    """Insert the repository; return False if the name is taken.

    Raise `QuotaExceeded` if the account would exceed its quota of repositories.
    """
    of = {"id": repository_id, "account_id": account_id, "source": source}
    added = tx.row(_ADD, **of, **new.values(), now=now)
    if added is None:
        return False
    check_added(tx, account_id, REPOSITORIES, added[0], 1, now)
    add_to_folders(tx, account_id, new.name)
    return True


def find_or_add_repository(
    tx: Connection,
    repository_id: str,
    account: RegistryAccount,
    name: str,
    now: int,
    *,
    source: str = "push",
    tag_mutability: str = "mutable",
) -> Repository:
    """Return the live repository with this name; insert it under this id if there is none.

    Raise `QuotaExceeded` if the account would exceed its quota of repositories.
    """
    new = NewRepository(name, None, {}, tag_mutability, ())
    found: Repository | None = None
    while found is None:
        is_added = add_repository(tx, repository_id, account.id, new, now, source=source)
        found = find_repository(tx, account.handle, name)
        # On PostgreSQL, the repository that had the name may have been deleted since.
        assert found is not None or not is_added
    return found


def add_to_counters(tx: Connection, repository_id: str, now: int, counts: Counts) -> None:
    """Add to a repository's counters and increment its revision; the caller holds its lock.

    Every change of the repository's tags and images ends with this call. Raise `QuotaExceeded` if
    the account would exceed its quota of images or tags.
    """
    changes = {"repository_id": repository_id, "now": now, **counts._asdict()}
    if counts.images <= 0 and counts.tags <= 0:
        tx.execute(_COUNT_FEWER, **changes)
        return
    row = tx.row(_COUNT_MORE, **changes)
    assert row is not None
    check_added(tx, row[0], IMAGES, row[1], counts.images, now)
    check_added(tx, row[0], TAGS, row[2], counts.tags, now)


def set_sparse(tx: Connection, repository_id: str) -> None:
    """Set `is_sparse`: an index lacks a child. The caller has locked the repository."""
    tx.execute(_SET_SPARSE, repository_id=repository_id)


def list_repository_names(tx: Connection, handle: str, after: str, limit: int) -> list[str]:
    """Return up to `limit` names of an account's live repositories after `after`, in byte order."""
    return [row[0] for row in tx.rows(_LIST, handle=handle, after=after, limit=limit)]


def _repository_of(row: Row) -> Repository:
    """Convert a row that begins with `_REPOSITORY_COLUMNS`."""
    exclusions = () if row[4] == "[]" else tuple(msgspec.json.decode(row[4], type=list[str]))
    return Repository(
        row[0],
        row[1],
        row[2],
        row[3] == "immutable",
        exclusions,
        bool(row[5]),
        row[6] == PULL_THROUGH_CACHE,
        bool(row[7]),
    )


_p = resource_policies.c


class VisibleRepository(NamedTuple):
    """A live repository of an active account: its settings, its counters, and its policy."""

    repository: Repository
    handle: str
    image_count: int
    tagged_image_count: int
    tag_count: int
    updated_at: int
    target: RepositoryAccess


_FIND_VISIBLE: Final = Statement(
    select(
        *_REPOSITORY_COLUMNS,
        accounts.c.handle,
        _r.image_count,
        _r.tagged_image_count,
        _r.tag_count,
        _r.updated_at,
        _p.document,
        _p.principal_ids,
    )
    .select_from(repositories)
    .join(accounts, accounts.c.id == _r.account_id)
    .outerjoin(resource_policies, _p.repository_id == _r.id)
    .where(
        _r.id == bindparam("repository_id"),
        _r.deleted_at.is_(None),
        accounts.c.status == text("'active'"),
    )
)


def find_visible_repository(tx: Connection, repository_id: str) -> VisibleRepository | None:
    """Return a live repository of any active account, or None; the caller checks permissions."""
    row = tx.row(_FIND_VISIBLE, repository_id=repository_id)
    if row is None:
        return None
    target = RepositoryAccess(row[1], row[0], *row[13:])
    return VisibleRepository._make((_repository_of(row), *row[8:13], target))
