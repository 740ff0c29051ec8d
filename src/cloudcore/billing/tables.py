"""The tables of billing, with the constraints that decide races.

Amounts are decimal numbers as text; moments are microseconds since the epoch.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata, partial_index

_ORGANIZATION: Final = "organizations.id"

payment_methods = Table(
    "payment_methods",
    metadata,
    Column("id", Id, primary_key=True),
    Column("organization_id", ForeignKey(_ORGANIZATION, ondelete="CASCADE"), nullable=False),
    Column("type", String(16), nullable=False),
    Column("display_name", Text, nullable=False),
    Column("brand", Text),
    Column("last4", String(4)),
    Column("exp_month", Integer),
    Column("exp_year", Integer),
    Column("is_default", Boolean, nullable=False),
    Column("processor", String(16), nullable=False),
    Column("reference", Text, nullable=False),  # what the processor calls it; no number of a card
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    CheckConstraint("type IN ('card', 'sepa_debit')", name="type"),
    Index(None, "organization_id", "id"),
    # The arbiter of races: no transaction leaves an organization with two defaults.
    partial_index(
        "uq_payment_methods_default", "organization_id", where=text("is_default"), unique=True
    ),
)

payment_customers = Table(
    "payment_customers",
    metadata,
    Column("organization_id", ForeignKey(_ORGANIZATION, ondelete="CASCADE"), primary_key=True),
    Column("processor", String(16), primary_key=True),
    Column("reference", Text, nullable=False),  # what the processor calls the organization
)

invoices = Table(
    "invoices",
    metadata,
    Column("id", Id, primary_key=True),
    Column("organization_id", ForeignKey(_ORGANIZATION), nullable=False),
    Column("period_start", Moment, nullable=False),
    Column("period_end", Moment, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("total", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),  # payments that were declined
    Column("due_at", Moment, nullable=False),
    Column("charge_at", Moment),  # when the next payment is tried without a request
    Column("paid_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    # Of two that close a month of an organization at once, one has no effect.
    UniqueConstraint("organization_id", "period_start", "currency"),
    CheckConstraint("status IN ('open', 'paid', 'failed', 'void')", name="status"),
    CheckConstraint("(status = 'paid') = (paid_at IS NOT NULL)", name="paid_at"),
    Index(None, "organization_id", "id"),
)

invoice_lines = Table(
    "invoice_lines",
    metadata,
    Column("invoice_id", ForeignKey("invoices.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("region", ByteOrdered, nullable=False),
    Column("sku", ByteOrdered, nullable=False),
    Column("month", Moment, nullable=False),  # the beginning of the one in which it was used
    Column("unit", Text, nullable=False),
    Column("quantity", Text, nullable=False),
    Column("unit_amount", Text, nullable=False),
    Column("amount", Text, nullable=False),
)

billed_usage = Table(
    "billed_usage",
    metadata,
    Column("account_id", ForeignKey("accounts.id"), primary_key=True),
    Column("region", ByteOrdered, primary_key=True),
    Column("sku", ByteOrdered, primary_key=True),
    Column("month", Moment, primary_key=True),
    Column("quantity", BigInteger, nullable=False),  # of the smallest unit, over all invoices
)

closed_months = Table(
    "closed_months",
    metadata,
    Column("month", Moment, primary_key=True),
    Column("closed_at", Moment, nullable=False),
)

invoice_charges = Table(
    "invoice_charges",
    metadata,
    Column("id", Id, primary_key=True),  # also the processor's idempotency key
    Column("organization_id", Id, nullable=False),
    Column("invoice_id", ForeignKey("invoices.id", ondelete="CASCADE"), nullable=False),
    Column("payment_method_id", Id, nullable=False),
    Column("method", Text, nullable=False),  # its display name, which stays when it is deleted
    Column("processor", String(16), nullable=False),
    Column("method_reference", Text, nullable=False),
    Column("amount", Text, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reference", Text),  # what the processor calls the charge, known before money moves
    Column("code", Text),  # why it was declined
    Column("message", Text),
    Column("request_key", String(64)),  # SHA-256 of the Idempotency-Key that asked for it
    Column("created_at", Moment, nullable=False),
    Column("ended_at", Moment),
    CheckConstraint("state IN ('pending', 'succeeded', 'declined')", name="state"),
    CheckConstraint("(state = 'pending') = (ended_at IS NULL)", name="ended_at"),
    UniqueConstraint("invoice_id", "request_key"),
    # One payment of an invoice at a time, and one that succeeds.
    partial_index(
        "uq_invoice_charges_live",
        "invoice_id",
        where=text("state IN ('pending', 'succeeded')"),
        unique=True,
    ),
    partial_index(
        "ix_invoice_charges_pending", "payment_method_id", where=text("state = 'pending'")
    ),
)

embedded_charges = Table(
    "embedded_charges",
    metadata,
    Column("id", Id, primary_key=True),
    Column("amount", Text, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("decline", Text, nullable=False),  # empty: it was paid
    Column("charged_at", Moment, nullable=False),
)
