"""Revisions of a repository's policies: a new policy continues where a deleted one ended.

Lock the repository before you put or remove a policy; else two could get the same revision.
"""

from __future__ import annotations

from typing import Final, Literal

from sqlalchemy import ColumnElement, ScalarSelect, Table, bindparam, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.statement import Statement
from registry.metadata.control_tables import policy_revisions

_v = policy_revisions.c

Kind = Literal["resource", "lifecycle"]


def first_revision(kind: Kind) -> ColumnElement[int]:
    """Return the SQL expression of a new policy's revision; it binds ``repository_id``."""
    last: ScalarSelect[int] = (
        select(_v.revision)
        .where(_v.repository_id == bindparam("repository_id"), _v.kind == _literal(kind))
        .scalar_subquery()
    )
    return func.coalesce(last, literal_column("0")) + literal_column("1")


def keep_revision(kind: Kind, policies: Table) -> Statement:
    """Return the statement that saves a deleted policy's revision; it binds ``repository_id``."""
    of_policy = select(policies.c.repository_id, _literal(kind), policies.c.revision).where(
        policies.c.repository_id == bindparam("repository_id")
    )
    kept = insert(policy_revisions).from_select(["repository_id", "kind", "revision"], of_policy)
    return Statement(
        kept.on_conflict_do_update(
            index_elements=["repository_id", "kind"], set_={"revision": kept.excluded.revision}
        )
    )


_KINDS: Final = {"resource": "'resource'", "lifecycle": "'lifecycle'"}


def _literal(kind: Kind) -> ColumnElement[str]:
    return literal_column(_KINDS[kind])
