"""Resource policies, at most one per repository, and the columns that access decisions read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, bound, given, json_text
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from registry.metadata.control_tables import policy_revisions
from registry.metadata.tables import repositories, resource_policies

_v = policy_revisions.c

Kind = Literal["resource", "lifecycle"]


def first_revision(kind: Kind) -> sa.ColumnElement[int]:
    """Build the SQL expression of a new policy's revision: one more than the deleted policy's.

    The expression binds ``repository_id``.
    """
    last: sa.ScalarSelect[int] = (
        sa.select(_v.revision)
        .where(given(_v.repository_id), _v.kind == _literal(kind))
        .scalar_subquery()
    )
    return sa.func.coalesce(last, ZERO) + ONE


def keep_revision(kind: Kind, policies: sa.Table) -> Statement:
    """Build the statement that saves the revision of a policy that is about to be deleted.

    The statement binds ``repository_id``.
    """
    of_policy = sa.select(policies.c.repository_id, _literal(kind), policies.c.revision).where(
        given(policies.c.repository_id)
    )
    kept = insert(policy_revisions).from_select(["repository_id", "kind", "revision"], of_policy)
    return Statement(
        kept.on_conflict_do_update(
            index_elements=["repository_id", "kind"], set_={"revision": kept.excluded.revision}
        )
    )


def _literal(kind: Kind) -> sa.ColumnElement[str]:
    return sa.literal_column(f"'{kind}'")


_p = resource_policies.c


class StoredResourcePolicy(NamedTuple):
    """A repository's policy as it was accepted."""

    document: Any
    revision: int
    updated_at: int


class NewPolicy(NamedTuple):
    """A parsed policy to store, with the ids of the accounts and principals that it names."""

    document: Any
    principal_ids: Mapping[str, str]
    """The current ids of the document's handles and names; see `identity.rights.documents`."""
    visibility: str


class RepositoryAccess(NamedTuple):
    """An account, a repository and its policy, for access decisions; each None if missing."""

    account_id: str | None
    repository_id: str | None
    document: str | None
    principal_ids: str | None


_new = insert(resource_policies).values(
    **bound(("repository_id", "document", "principal_ids", "visibility")),
    revision=first_revision("resource"),
    updated_at=sa.bindparam("now"),
)
_PUT: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["repository_id"],
        set_={
            "document": _new.excluded.document,
            "principal_ids": _new.excluded.principal_ids,
            "visibility": _new.excluded.visibility,
            "revision": _p.revision + sa.text("1"),
            "updated_at": _new.excluded.updated_at,
        },
    )
)
_FIND: Final = Statement(
    sa.select(_p.document, _p.revision, _p.updated_at).where(given(_p.repository_id))
)
_KEEP_REVISION: Final = keep_revision("resource", resource_policies)
_REMOVE: Final = Statement(resource_policies.delete().where(given(_p.repository_id)))
_TARGET: Final = Statement(
    sa.select(accounts.c.id, repositories.c.id, _p.document, _p.principal_ids)
    .select_from(accounts)
    .outerjoin(
        repositories,
        sa.and_(
            repositories.c.account_id == accounts.c.id,
            given(repositories.c.name),
            repositories.c.deleted_at.is_(None),
        ),
    )
    .outerjoin(resource_policies, _p.repository_id == repositories.c.id)
    .where(given(accounts.c.handle), accounts.c.status == sa.text("'active'"))
)


def store_resource_policy(
    tx: Connection, repository_id: str, new: NewPolicy, now: int
) -> StoredResourcePolicy:
    """Insert or replace a repository's policy, and return it. Lock the repository first."""
    tx.execute(
        _PUT,
        repository_id=repository_id,
        document=json_text(new.document),
        principal_ids=json_text(new.principal_ids),
        visibility=new.visibility,
        now=now,
    )
    stored = find_resource_policy(tx, repository_id)
    assert stored is not None
    return stored


def find_resource_policy(tx: Connection, repository_id: str) -> StoredResourcePolicy | None:
    """Return a repository's policy, or None."""
    row = tx.row(_FIND, repository_id=repository_id)
    return StoredResourcePolicy(msgspec.json.decode(row[0]), row[1], row[2]) if row else None


def remove_resource_policy(tx: Connection, repository_id: str) -> bool:
    """Remove a repository's policy; return False if it had none. Lock the repository first."""
    tx.execute(_KEEP_REVISION, repository_id=repository_id)
    return tx.execute(_REMOVE, repository_id=repository_id) == 1


def find_repository_access(tx: Connection, handle: str, name: str) -> RepositoryAccess:
    """Return the account, repository and policy of a repository name, each None if missing."""
    row = tx.row(_TARGET, handle=handle, name=name)
    return RepositoryAccess(*row) if row else RepositoryAccess(None, None, None, None)
