"""Add payment methods, invoices and their charges, and what of use was billed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0059"
down_revision = "0058"


def upgrade() -> None:
    op.create_table(
        "closed_months",
        sa.Column("month", Moment, nullable=False),
        sa.Column("closed_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("month", name=op.f("pk_closed_months")),
    )
    op.create_table(
        "embedded_charges",
        sa.Column("id", Id, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("decline", sa.Text, nullable=False),
        sa.Column("charged_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_embedded_charges")),
    )
    op.create_table(
        "invoices",
        sa.Column("id", Id, nullable=False),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("period_start", Moment, nullable=False),
        sa.Column("period_end", Moment, nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("total", sa.Text, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        sa.Column("charge_at", Moment),
        sa.Column("paid_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint(
            "(status = 'paid') = (paid_at IS NOT NULL)", name=op.f("ck_invoices_paid_at")
        ),
        sa.CheckConstraint(
            "status IN ('open', 'paid', 'failed', 'void')", name=op.f("ck_invoices_status")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_invoices_organization_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invoices")),
        sa.UniqueConstraint(
            "organization_id",
            "period_start",
            "currency",
            name=op.f("uq_invoices_organization_id_period_start_currency"),
        ),
    )
    op.create_index("ix_invoices_organization_id_id", "invoices", ["organization_id", "id"])

    op.create_table(
        "payment_customers",
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("processor", sa.String(length=16), nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_payment_customers_organization_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organization_id", "processor", name=op.f("pk_payment_customers")),
    )
    op.create_table(
        "payment_methods",
        sa.Column("id", Id, nullable=False),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("brand", sa.Text),
        sa.Column("last4", sa.String(length=4)),
        sa.Column("exp_month", sa.Integer),
        sa.Column("exp_year", sa.Integer),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("processor", sa.String(length=16), nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint("type IN ('card', 'sepa_debit')", name=op.f("ck_payment_methods_type")),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_payment_methods_organization_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_payment_methods")),
    )
    op.create_index(
        "ix_payment_methods_organization_id_id", "payment_methods", ["organization_id", "id"]
    )
    where = sa.text("is_default")
    op.create_index(
        "uq_payment_methods_default",
        "payment_methods",
        ["organization_id"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )

    op.create_table(
        "billed_usage",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("month", Moment, nullable=False),
        sa.Column("quantity", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_billed_usage_account_id")
        ),
        sa.PrimaryKeyConstraint(
            "account_id", "region", "sku", "month", name=op.f("pk_billed_usage")
        ),
    )
    op.create_table(
        "invoice_charges",
        sa.Column("id", Id, nullable=False),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("invoice_id", Id, nullable=False),
        sa.Column("payment_method_id", Id, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("processor", sa.String(length=16), nullable=False),
        sa.Column("method_reference", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reference", sa.Text),
        sa.Column("code", sa.Text),
        sa.Column("message", sa.Text),
        sa.Column("request_key", sa.String(length=64)),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.CheckConstraint(
            "(state = 'pending') = (ended_at IS NULL)", name=op.f("ck_invoice_charges_ended_at")
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'succeeded', 'declined')", name=op.f("ck_invoice_charges_state")
        ),
        sa.ForeignKeyConstraint(
            ["invoice_id"],
            ["invoices.id"],
            name=op.f("fk_invoice_charges_invoice_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invoice_charges")),
        sa.UniqueConstraint(
            "invoice_id", "request_key", name=op.f("uq_invoice_charges_invoice_id_request_key")
        ),
    )
    where = sa.text("state = 'pending'")
    op.create_index(
        "ix_invoice_charges_pending",
        "invoice_charges",
        ["payment_method_id"],
        unique=False,
        sqlite_where=where,
        postgresql_where=where,
    )
    where = sa.text("state IN ('pending', 'succeeded')")
    op.create_index(
        "uq_invoice_charges_live",
        "invoice_charges",
        ["invoice_id"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )

    op.create_table(
        "invoice_lines",
        sa.Column("invoice_id", Id, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("month", Moment, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("quantity", sa.Text, nullable=False),
        sa.Column("unit_amount", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_invoice_lines_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["invoice_id"],
            ["invoices.id"],
            name=op.f("fk_invoice_lines_invoice_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("invoice_id", "position", name=op.f("pk_invoice_lines")),
    )
    op.create_index("ix_invoice_lines_account_id", "invoice_lines", ["account_id"])


def downgrade() -> None:
    op.drop_table("invoice_lines")
    op.drop_table("invoice_charges")
    op.drop_table("billed_usage")
    op.drop_table("payment_methods")
    op.drop_table("payment_customers")
    op.drop_table("invoices")
    op.drop_table("embedded_charges")
    op.drop_table("closed_months")
