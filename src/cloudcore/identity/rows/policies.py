"""Queries of policies and their attachments."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, func, literal_column, or_, select, union_all

from cloudcore.db.base import Connection
from cloudcore.db.rows import columns, count
from cloudcore.db.statement import Statement, named, page, unindexed
from cloudcore.identity.rows.owned import OwnedRows
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
    """The ids of the names in the document, as JSON; see `identity.documents`."""


class Attachment(NamedTuple):
    """A policy attached to a service account or a role; one of the two is set."""

    id: str
    account_id: str
    policy_id: str
    service_account_id: str | None
    role_id: str | None
    created_at: int
    name: str = ""
    """Of the service account or role; not stored here."""


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
_COUNT_ON: Final = Statement(
    select(func.count()).select_from(policy_attachments).where(_ON_PRINCIPAL)
)
_SIZE_ON: Final = Statement(
    select(func.coalesce(func.sum(func.length(_p.document)), literal_column("0")))
    .select_from(policy_attachments)
    .join(policies, _p.id == _t.policy_id)
    .where(_ON_PRINCIPAL)
)


def _sizes_beside(principal: str) -> Select[Any]:
    """Return the query for the total size of a principal's other policies, per principal."""
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


_BESIDE: Final = union_all(_sizes_beside("service_account_id"), _sizes_beside("role_id")).subquery(
    "beside"
)
_LARGEST_BESIDE: Final = Statement(
    select(func.coalesce(func.max(_BESIDE.c.size), literal_column("0")))
)
_OF_PRINCIPAL: Final = (unindexed(_p.account_id) == bindparam("account_id"), _ON_PRINCIPAL)
_DOCUMENTS: Final = Statement(
    select(_p.document, _p.account_ids)
    .join(policy_attachments, _t.policy_id == _p.id)
    .where(*_OF_PRINCIPAL)
    .order_by(_t.id)
)
_every = columns(policies, PolicyRow._fields)
_ATTACHED: Final = _p.id.in_(select(_t.policy_id).where(_ON_PRINCIPAL))
_IN_LIST: Final = (_p.account_id == bindparam("account_id"), named(_p.name), _ATTACHED)
_LIST_ATTACHED: Final = Statement(
    page(_every.where(*_IN_LIST, _p.name > bindparam("after")).order_by(_p.name))
)
_COUNT_ATTACHED: Final = Statement(select(func.count()).select_from(policies).where(*_IN_LIST))
_LIST_OF: Final = Statement(
    _every.join(policy_attachments, _t.policy_id == _p.id).where(*_OF_PRINCIPAL).order_by(_t.id)
)
_IS_USED: Final = Statement(
    page(
        select(literal_column("1"))
        .select_from(policy_attachments)
        .where(_t.policy_id == bindparam("policy_id"))
    )
)


def list_attached_policies(
    tx: Connection, account_id: str, name: str, principal_id: str, after: str, limit: int
) -> list[PolicyRow]:
    """Return those of `POLICIES.list` that are attached to a principal."""
    rows = tx.rows(
        _LIST_ATTACHED,
        account_id=account_id,
        name=name,
        principal_id=principal_id,
        after=after,
        limit=limit,
    )
    return [PolicyRow(*row) for row in rows]


def count_attached_policies(tx: Connection, account_id: str, name: str, principal_id: str) -> int:
    """Count the policies that `list_attached_policies` lists."""
    return count(tx, _COUNT_ATTACHED, account_id=account_id, name=name, principal_id=principal_id)


def is_attached(tx: Connection, policy_id: str) -> bool:
    """Return True if a policy has an attachment."""
    return tx.row(_IS_USED, policy_id=policy_id, limit=1) is not None


def count_attached_to(tx: Connection, principal_id: str) -> int:
    """Count the policies attached to a service account or role."""
    return count(tx, _COUNT_ON, principal_id=principal_id)


def size_attached_to(tx: Connection, principal_id: str) -> int:
    """Return the total size in bytes of the policies of a service account or role."""
    row = tx.row(_SIZE_ON, principal_id=principal_id)
    return int(row[0]) if row else 0


def largest_size_beside(tx: Connection, policy_id: str) -> int:
    """Return the largest total size in bytes of other policies among principals with this one."""
    row = tx.row(_LARGEST_BESIDE, policy_id=policy_id)
    return int(row[0]) if row else 0


def list_documents_of(tx: Connection, account_id: str, principal_id: str) -> list[tuple[str, str]]:
    """Return the documents attached to a service account or role, each with its ids."""
    rows = tx.rows(_DOCUMENTS, account_id=account_id, principal_id=principal_id)
    return [(row[0], row[1]) for row in rows]


def list_policies_of(tx: Connection, account_id: str, principal_id: str) -> list[PolicyRow]:
    """Return the policies attached to a service account or role, oldest attachment first."""
    rows = tx.rows(_LIST_OF, account_id=account_id, principal_id=principal_id)
    return [PolicyRow(*row) for row in rows]
