"""The tables of billing, with the constraints that decide races.

Amounts are decimal numbers as text; moments are microseconds since the epoch.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata, partial_index

_ORGANIZATION: Final = "organizations.id"

payment_methods = sa.Table(
    "payment_methods",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("organization_id", sa.ForeignKey(_ORGANIZATION, ondelete="CASCADE"), nullable=False),
    sa.Column("type", sa.String(16), nullable=False),
    sa.Column("display_name", sa.Text, nullable=False),
    sa.Column("brand", sa.Text),
    sa.Column("last4", sa.String(4)),
    sa.Column("exp_month", sa.Integer),
    sa.Column("exp_year", sa.Integer),
    sa.Column("is_default", sa.Boolean, nullable=False),
    sa.Column("processor", sa.String(16), nullable=False),
    # what the processor calls it; no number of a card
    sa.Column("reference", sa.Text, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    sa.CheckConstraint("type IN ('card', 'sepa_debit')", name="type"),
    sa.Index(None, "organization_id", "id"),
    # The arbiter of races: no transaction leaves an organization with two defaults.
    partial_index(
        "uq_payment_methods_default", "organization_id", where=sa.text("is_default"), unique=True
    ),
)

payment_customers = sa.Table(
    "payment_customers",
    metadata,
    sa.Column(
        "organization_id", sa.ForeignKey(_ORGANIZATION, ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("processor", sa.String(16), primary_key=True),
    sa.Column("reference", sa.Text, nullable=False),  # what the processor calls the organization
)

invoices = sa.Table(
    "invoices",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("organization_id", sa.ForeignKey(_ORGANIZATION), nullable=False),
    sa.Column("period_start", Moment, nullable=False),
    sa.Column("period_end", Moment, nullable=False),
    sa.Column("currency", sa.String(3), nullable=False),
    sa.Column("total", sa.Text, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),  # payments that were declined
    sa.Column("due_at", Moment, nullable=False),
    sa.Column("charge_at", Moment),  # when the next payment is tried without a request
    sa.Column("paid_at", Moment),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    # Of two that close a month of an organization at once, one has no effect.
    sa.UniqueConstraint("organization_id", "period_start", "currency"),
    sa.CheckConstraint("status IN ('open', 'paid', 'failed', 'void')", name="status"),
    sa.CheckConstraint("(status = 'paid') = (paid_at IS NOT NULL)", name="paid_at"),
    sa.Index(None, "organization_id", "id"),
)

invoice_lines = sa.Table(
    "invoice_lines",
    metadata,
    sa.Column("invoice_id", sa.ForeignKey("invoices.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("region", ByteOrdered, nullable=False),
    sa.Column("sku", ByteOrdered, nullable=False),
    sa.Column("month", Moment, nullable=False),  # the beginning of the one in which it was used
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("quantity", sa.Text, nullable=False),
    sa.Column("unit_amount", sa.Text, nullable=False),
    sa.Column("amount", sa.Text, nullable=False),
)

billed_usage = sa.Table(
    "billed_usage",
    metadata,
    sa.Column("account_id", sa.ForeignKey("accounts.id"), primary_key=True),
    sa.Column("region", ByteOrdered, primary_key=True),
    sa.Column("sku", ByteOrdered, primary_key=True),
    sa.Column("month", Moment, primary_key=True),
    sa.Column("quantity", sa.BigInteger, nullable=False),  # of the smallest unit, over all invoices
)

closed_months = sa.Table(
    "closed_months",
    metadata,
    sa.Column("month", Moment, primary_key=True),
    sa.Column("closed_at", Moment, nullable=False),
)

invoice_charges = sa.Table(
    "invoice_charges",
    metadata,
    sa.Column("id", Id, primary_key=True),  # also the processor's idempotency key
    sa.Column("organization_id", Id, nullable=False),
    sa.Column("invoice_id", sa.ForeignKey("invoices.id", ondelete="CASCADE"), nullable=False),
    sa.Column("payment_method_id", Id, nullable=False),
    # its display name, which stays when it is deleted
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("processor", sa.String(16), nullable=False),
    sa.Column("method_reference", sa.Text, nullable=False),
    sa.Column("amount", sa.Text, nullable=False),
    sa.Column("currency", sa.String(3), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    # what the processor calls the charge, known before money moves
    sa.Column("reference", sa.Text),
    sa.Column("code", sa.Text),  # why it was declined
    sa.Column("message", sa.Text),
    sa.Column("request_key", sa.String(64)),  # SHA-256 of the Idempotency-Key that asked for it
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("ended_at", Moment),
    sa.CheckConstraint("state IN ('pending', 'succeeded', 'declined')", name="state"),
    sa.CheckConstraint("(state = 'pending') = (ended_at IS NULL)", name="ended_at"),
    sa.UniqueConstraint("invoice_id", "request_key"),
    # One payment of an invoice at a time, and one that succeeds.
    partial_index(
        "uq_invoice_charges_live",
        "invoice_id",
        where=sa.text("state IN ('pending', 'succeeded')"),
        unique=True,
    ),
    partial_index(
        "ix_invoice_charges_pending", "payment_method_id", where=sa.text("state = 'pending'")
    ),
)

embedded_charges = sa.Table(
    "embedded_charges",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("amount", sa.Text, nullable=False),
    sa.Column("currency", sa.String(3), nullable=False),
    sa.Column("decline", sa.Text, nullable=False),  # empty: it was paid
    sa.Column("charged_at", Moment, nullable=False),
)
