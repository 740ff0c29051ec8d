"""Keep the ids that names in policies meant, and the last revision of a deleted policy.

A trust policy names roles and service accounts of other accounts by CRN; from now on such a name
means the principal that had it when the policy was written. In policies that exist already it means
the principal that has it at this migration, or nobody. Accounts in them are named by id already.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_TABLES = {"role": "roles", "service-account": "service_accounts"}


def upgrade() -> None:
    for table, column in (("roles", "trust_ids"), ("policies", "account_ids")):
        op.add_column(
            table, sa.Column(column, sa.Text(), server_default=sa.text("'{}'"), nullable=False)
        )
    _pin_trusted()
    op.create_table(
        "policy_revisions",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('resource', 'lifecycle')", name=op.f("ck_policy_revisions_kind")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_policy_revisions_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("repository_id", "kind", name=op.f("pk_policy_revisions")),
    )


def downgrade() -> None:
    op.drop_table("policy_revisions")
    op.drop_column("policies", "account_ids")
    op.drop_column("roles", "trust_ids")


def _pin_trusted() -> None:
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT id, account_id, trust_policy FROM roles")).all()
    for role_id, account_id, trust_policy in rows:
        named = {
            principal
            for statement in json.loads(trust_policy)["statements"]
            for principal in statement["principals"]
            if principal.startswith("crn:")
        }
        ids = {
            crn: _bearer(connection, crn) for crn in sorted(named) if _is_pinned(crn, account_id)
        }
        if ids:
            connection.execute(
                sa.text("UPDATE roles SET trust_ids = :ids WHERE id = :id"),
                {"ids": json.dumps(ids, separators=(",", ":")), "id": role_id},
            )


def _is_pinned(crn: str, account_id: str) -> bool:
    account, rest = crn.split(":", 4)[3:]
    return account != account_id and rest.partition("/")[0] in _TABLES


def _bearer(connection: sa.Connection, crn: str) -> str:
    account, rest = crn.split(":", 4)[3:]
    kind, _, name = rest.partition("/")
    statement = f"SELECT id FROM {_TABLES[kind]} WHERE account_id = :account AND name = :name"  # noqa: S608
    found = connection.execute(sa.text(statement), {"account": account, "name": name}).first()
    return "" if found is None else str(found[0])
