"""Add certificates, and the authority of the install."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0037"
down_revision = "0036"

_IS_RENEWED = sa.text("renew_at IS NOT NULL")
_IS_ACTIVE = sa.text("status = 'active'")


def upgrade() -> None:
    op.create_table(
        "certificates",
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("domains", sa.Text, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("source", sa.String(8), nullable=False),
        sa.Column("issuer", sa.String(16), nullable=False),
        sa.Column("key_algorithm", sa.String(10), nullable=False),
        sa.Column("challenges", sa.Text, nullable=False),
        sa.Column("certificate_pem", sa.Text),
        sa.Column("chain_pem", sa.Text),
        sa.Column("fingerprint", sa.String(64)),
        sa.Column("private_key", sa.LargeBinary),
        sa.Column("issued_at", Moment),
        sa.Column("expires_at", Moment),
        sa.Column("renew_at", Moment),
        sa.Column("revocation_asked_at", Moment),
        sa.Column("is_recheck_asked", sa.Boolean, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "status IN ('pending_validation', 'issuing', 'active', 'expired', 'revoked', 'failed')",
            name=op.f("ck_certificates_status"),
        ),
        sa.CheckConstraint("source IN ('acme', 'uploaded')", name=op.f("ck_certificates_source")),
        sa.CheckConstraint(
            "(source = 'uploaded') = (issuer = '')", name=op.f("ck_certificates_issuer")
        ),
        sa.CheckConstraint(
            "(certificate_pem IS NULL) = (status IN ('pending_validation', 'issuing', 'failed'))",
            name=op.f("ck_certificates_certificate_pem"),
        ),
        sa.CheckConstraint(
            "(certificate_pem IS NULL) = (private_key IS NULL)",
            name=op.f("ck_certificates_private_key"),
        ),
        sa.CheckConstraint(
            "(certificate_pem IS NULL) = (expires_at IS NULL)",
            name=op.f("ck_certificates_expires_at"),
        ),
        sa.CheckConstraint(
            "renew_at IS NULL OR (source = 'acme' AND status IN ('active', 'expired'))",
            name=op.f("ck_certificates_renew_at"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_certificates")),
        sa.UniqueConstraint(
            "account_id", "region", "name", name=op.f("uq_certificates_account_id_region_name")
        ),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_certificates_id_account_id")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_certificates_account_id")
        ),
    )
    op.create_index("ix_certificates_account_id_id", "certificates", ["account_id", "id"])
    op.create_index(
        "ix_certificates_renew_at",
        "certificates",
        ["renew_at"],
        sqlite_where=_IS_RENEWED,
        postgresql_where=_IS_RENEWED,
    )
    op.create_index(
        "ix_certificates_expires_at",
        "certificates",
        ["expires_at"],
        sqlite_where=_IS_ACTIVE,
        postgresql_where=_IS_ACTIVE,
    )
    op.create_table(
        "certificate_issues",
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("certificate_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("issuer", sa.String(16), nullable=False),
        sa.Column("certificate", sa.LargeBinary, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_certificate_issues")),
        sa.ForeignKeyConstraint(
            ["certificate_id"],
            ["certificates.id"],
            name=op.f("fk_certificate_issues_certificate_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_certificate_issues_account_id")
        ),
    )
    op.create_index(
        "ix_certificate_issues_certificate_id", "certificate_issues", ["certificate_id"]
    )
    op.create_table(
        "certificate_texts",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("value", ByteOrdered, nullable=False),
        sa.Column("certificate_id", Id, nullable=False),
        sa.PrimaryKeyConstraint("name", "value", name=op.f("pk_certificate_texts")),
        sa.ForeignKeyConstraint(
            ["certificate_id"],
            ["certificates.id"],
            name=op.f("fk_certificate_texts_certificate_id"),
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_certificate_texts_certificate_id", "certificate_texts", ["certificate_id"])
    op.create_table(
        "certificate_users",
        sa.Column("certificate_id", Id, nullable=False),
        sa.Column("used_by", ByteOrdered, nullable=False),
        sa.PrimaryKeyConstraint("certificate_id", "used_by", name=op.f("pk_certificate_users")),
        sa.ForeignKeyConstraint(
            ["certificate_id"],
            ["certificates.id"],
            name=op.f("fk_certificate_users_certificate_id"),
        ),
    )
    op.create_table(
        "certificate_authorities",
        sa.Column("id", Id, nullable=False),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("certificate", sa.LargeBinary, nullable=False),
        sa.Column("private_key", sa.LargeBinary, nullable=False),
        sa.Column("revocation_list", sa.LargeBinary, nullable=False),
        sa.Column("list_number", sa.Integer, nullable=False),
        sa.Column("listed_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.CheckConstraint(
            "role IN ('root', 'issuing')", name=op.f("ck_certificate_authorities_role")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_certificate_authorities")),
        sa.UniqueConstraint(
            "role", "generation", name=op.f("uq_certificate_authorities_role_generation")
        ),
    )
    op.create_table(
        "certificate_revocations",
        sa.Column("serial", ByteOrdered, nullable=False),
        sa.Column("authority_id", Id, nullable=False),
        sa.Column("revoked_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("serial", "authority_id", name=op.f("pk_certificate_revocations")),
        sa.ForeignKeyConstraint(
            ["authority_id"],
            ["certificate_authorities.id"],
            name=op.f("fk_certificate_revocations_authority_id"),
        ),
    )
    op.create_index(
        "ix_certificate_revocations_authority_id",
        "certificate_revocations",
        ["authority_id", "expires_at"],
    )


def downgrade() -> None:
    op.drop_table("certificate_revocations")
    op.drop_table("certificate_authorities")
    op.drop_table("certificate_users")
    op.drop_table("certificate_texts")
    op.drop_table("certificate_issues")
    op.drop_table("certificates")
