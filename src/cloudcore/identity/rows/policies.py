"""Queries of policies and their attachments."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, and_, bindparam, func, or_, select, union_all

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, columns_of, count, find_all, total
from cloudcore.db.statement import Statement, unindexed
from cloudcore.identity.rows.owned import Listed, OwnedRows
from cloudcore.identity.tables import policies, policy_attachments, roles, service_accounts

_p = policies.c
_t = policy_attachments.c


class PolicyRow(NamedTuple):
    """A policy's row."""

    id: str
    account_id: str
    name: str
    description: str
    document: str
    revision: int
    created_at: int
    updated_at: int
    account_ids: str = "{}"
    """The ids of the names in the document, as JSON; see `rights.documents`."""


class Attachment(NamedTuple):
    """A policy attached to a service account or a role; one of the two is set."""

    id: str
    account_id: str
    policy_id: str
    service_account_id: str | None
    role_id: str | None
    created_at: int
    name: str = ""
    """Name of the service account or role, which is not stored in this row."""


POLICIES: Final = OwnedRows(
    policies,
    PolicyRow,
    "policy",
    ("description", "document", "account_ids", "revision", "updated_at"),
)
ATTACHMENTS: Final = OwnedRows(
    policy_attachments,
    Attachment,
    "attachment",
    owner="policy_id",
    has_account=True,
    label="id",
    computed=("name",),
    query=select(
        *(_t[name] for name in Attachment._fields[:-1]),
        func.coalesce(service_accounts.c.name, roles.c.name),
    )
    .select_from(policy_attachments)
    .outerjoin(service_accounts, service_accounts.c.id == _t.service_account_id)
    .outerjoin(roles, roles.c.id == _t.role_id),
)
_ON_PRINCIPAL: Final = or_(
    _t.service_account_id == bindparam("principal_id"), _t.role_id == bindparam("principal_id")
)
_FIND_TOTALS: Final = Statement(
    select(func.count(), total(func.length(_p.document)))
    .select_from(policy_attachments)
    .join(policies, _p.id == _t.policy_id)
    .where(_ON_PRINCIPAL)
)


def _other_policy_sizes(principal: str) -> Select[Any]:
    """Return the query for the total size of a principal's policies without `:policy_id`.

    There is a row for each principal that has this policy and others. `principal` is the column of
    attachments that has the principal's id.
    """
    with_it = policy_attachments.alias("with_it")
    return (
        select(func.sum(func.length(_p.document)).label("size"))
        .select_from(with_it)
        .join(policy_attachments, _t[principal] == with_it.c[principal])
        .join(policies, _p.id == _t.policy_id)
        .where(
            with_it.c.policy_id == bindparam("policy_id"),
            _t.policy_id != bindparam("policy_id"),
        )
        .group_by(_t[principal])
    )


_BESIDE: Final = union_all(
    _other_policy_sizes("service_account_id"), _other_policy_sizes("role_id")
).subquery("beside")
_FIND_LARGEST_SIZE_OF_OTHERS: Final = Statement(
    select(func.coalesce(func.max(_BESIDE.c.size), ZERO))
)
_every = columns_of(policies, PolicyRow._fields)
ATTACHED: Final = Listed(
    _every,
    PolicyRow,
    "policy",
    of=and_(
        _p.account_id == bindparam("account"),
        _p.id.in_(
            select(_t.policy_id).where(
                or_(_t.service_account_id == bindparam("owner"), _t.role_id == bindparam("owner"))
            )
        ),
    ),
    key=_p.id,
    label=_p.name,
    order=_p.name,
)
"""The policies of an account that are attached to a service account or role, by name."""
_LIST_POLICIES_OF: Final = Statement(
    _every.join(policy_attachments, _t.policy_id == _p.id)
    .where(unindexed(_p.account_id) == bindparam("account_id"), _ON_PRINCIPAL)
    .order_by(_t.id)
)


def find_totals(tx: Connection, principal_id: str) -> tuple[int, int]:
    """Return how many policies a service account or role has, and their size in bytes."""
    row = tx.row(_FIND_TOTALS, principal_id=principal_id)
    assert row is not None
    return row[0], row[1]


def find_largest_size_of_others(tx: Connection, policy_id: str) -> int:
    """Return the largest total size, in bytes, of one principal's policies other than this one.

    Only principals with this policy count; 0 if none of them has another policy.
    """
    return count(tx, _FIND_LARGEST_SIZE_OF_OTHERS, policy_id=policy_id)


def list_policies_of(tx: Connection, account_id: str, principal_id: str) -> list[PolicyRow]:
    """List the policies attached to a service account or role, oldest attachment first."""
    return find_all(
        tx, PolicyRow, _LIST_POLICIES_OF, account_id=account_id, principal_id=principal_id
    )
