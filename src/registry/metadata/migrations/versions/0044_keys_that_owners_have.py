"""Let owners of certificates bring a signing request, and have a copy of a key made here."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import Id, Moment

revision = "0044"
down_revision = "0043"

_KEY = "private_key"
_BEFORE = "(certificate_pem IS NULL) = (private_key IS NULL)"


def upgrade() -> None:
    with op.batch_alter_table("certificates", schema=None) as batch_op:
        batch_op.add_column(sa.Column("csr", sa.LargeBinary))
        batch_op.add_column(sa.Column("private_key_exported_at", Moment))
        batch_op.drop_constraint(op.f("ck_certificates_private_key"), type_="check")
        batch_op.create_check_constraint(
            op.f("ck_certificates_private_key"),
            "(private_key IS NOT NULL) = (certificate_pem IS NOT NULL AND csr IS NULL)",
        )
        batch_op.create_check_constraint(
            op.f("ck_certificates_csr"), "csr IS NULL OR source = 'acme'"
        )
        batch_op.create_check_constraint(
            op.f("ck_certificates_private_key_exported_at"),
            "private_key_exported_at IS NULL OR (private_key IS NOT NULL AND source = 'acme')",
        )
    op.create_table(
        "certificate_settings",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("private_key_export", sa.Boolean, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
            name=op.f("fk_certificate_settings_account_id"),
        ),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_certificate_settings")),
    )


def downgrade() -> None:
    """Delete certificates whose keys their owners have."""
    for child in ("certificate_issues", "certificate_texts", "certificate_users"):
        op.execute(
            f"DELETE FROM {child} WHERE certificate_id IN"  # noqa: S608 - no input
            " (SELECT id FROM certificates WHERE csr IS NOT NULL)"
        )
    op.execute("DELETE FROM certificates WHERE csr IS NOT NULL")
    op.drop_table("certificate_settings")
    with op.batch_alter_table("certificates", schema=None) as batch_op:
        batch_op.drop_constraint(op.f("ck_certificates_private_key_exported_at"), type_="check")
        batch_op.drop_constraint(op.f("ck_certificates_csr"), type_="check")
        batch_op.drop_constraint(op.f("ck_certificates_private_key"), type_="check")
        batch_op.create_check_constraint(op.f("ck_certificates_private_key"), _BEFORE)
        batch_op.drop_column("private_key_exported_at")
        batch_op.drop_column("csr")
