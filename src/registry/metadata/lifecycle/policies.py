"""Lifecycle policies, at most one per repository."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, case, select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, given
from cloudcore.db.statement import Statement, page
from registry.metadata.control_tables import lifecycle_policies
from registry.metadata.repositories.policies import first_revision, keep_revision

_p = lifecycle_policies.c


class StoredLifecyclePolicy(NamedTuple):
    """A repository's policy as it was accepted."""

    document: str
    revision: int
    next_run_at: int
    updated_at: int


_new = insert(lifecycle_policies).values(
    **bound(("repository_id", "document", "next_run_at")),
    revision=first_revision("lifecycle"),
    updated_at=bindparam("now"),
)
_PUT: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["repository_id"],
        set_={
            "document": _new.excluded.document,
            "revision": _p.revision + text("1"),
            # A later time than a new policy's was written under a wrong clock.
            "next_run_at": case(
                (_p.next_run_at > _new.excluded.next_run_at, _new.excluded.next_run_at),
                else_=_p.next_run_at,
            ),
            "updated_at": _new.excluded.updated_at,
        },
    )
)
_FIND: Final = Statement(
    select(_p.document, _p.revision, _p.next_run_at, _p.updated_at).where(given(_p.repository_id))
)
_KEEP_REVISION: Final = keep_revision("lifecycle", lifecycle_policies)
_REMOVE: Final = Statement(lifecycle_policies.delete().where(given(_p.repository_id)))
_DUE: Final = Statement(
    page(
        select(_p.repository_id).where(_p.next_run_at <= bindparam("now")).order_by(_p.next_run_at)
    )
)
_POSTPONE: Final = Statement(
    lifecycle_policies.update()
    .where(_p.repository_id == bindparam("repository"), _p.next_run_at <= bindparam("now"))
    .values(next_run_at=bindparam("next_run"))
)


def store_policy(
    tx: Connection, repository_id: str, document: str, now: int, next_run_at: int
) -> StoredLifecyclePolicy:
    """Insert or replace a repository's policy, and return it.

    Its next run is that of the replaced policy, or `next_run_at` if that is earlier.
    """
    tx.execute(
        _PUT, repository_id=repository_id, document=document, next_run_at=next_run_at, now=now
    )
    stored = find_policy(tx, repository_id)
    assert stored is not None
    return stored


def find_policy(tx: Connection, repository_id: str) -> StoredLifecyclePolicy | None:
    """Return a repository's policy, or None."""
    row = tx.row(_FIND, repository_id=repository_id)
    return StoredLifecyclePolicy(*row) if row else None


def remove_policy(tx: Connection, repository_id: str) -> bool:
    """Remove a repository's policy; return False if it had none.

    Lock the repository first.
    """
    tx.execute(_KEEP_REVISION, repository_id=repository_id)
    return tx.execute(_REMOVE, repository_id=repository_id) == 1


def list_due(tx: Connection, now: int, limit: int) -> list[str]:
    """Return the ids of up to `limit` repositories whose policies are due."""
    return [row[0] for row in tx.rows(_DUE, now=now, limit=limit)]


def postpone(tx: Connection, repository_id: str, now: int, next_run_at: int) -> bool:
    """Set the next run of a due policy; return False if it is no longer due or deleted."""
    return tx.execute(_POSTPONE, repository=repository_id, now=now, next_run=next_run_at) == 1
