"""The tables of billing, with the constraints that decide races.

Amounts are decimal numbers as text; moments are microseconds since the epoch.
"""

from __future__ import annotations

import sqlalchemy as sa

from cloudcore.db.schema import ByteOrdered, Id, Moment, one_of
from cloudcore.db.tables import columns, indexes, named_index, refers, table, unique_index

payment_methods = table(
    "payment_methods",
    refers("organization_id", "organizations", "CASCADE"),
    columns(sa.String(16), "type"),
    columns(sa.Text, "display_name, brand NULL"),
    columns(sa.String(4), "last4 NULL"),
    columns(sa.Integer, "exp_month NULL, exp_year NULL"),
    columns(sa.Boolean, "is_default"),
    columns(sa.String(16), "processor"),
    # the processor's id of the method; no number of a card
    columns(sa.Text, "reference"),
    columns(Moment, "created_at, updated_at"),
    one_of("type", "card", "sepa_debit"),
    indexes("organization_id, id"),
    # The arbiter of races: no transaction leaves an organization with two defaults.
    unique_index("default", "organization_id", "is_default"),
)

payment_customers = table(
    "payment_customers",
    refers("organization_id KEY", "organizations", "CASCADE"),
    columns(sa.String(16), "processor KEY"),
    columns(sa.Text, "reference"),  # the processor's id of the organization
)

invoices = table(
    "invoices",
    refers("organization_id", "organizations"),
    columns(Moment, "period_start, period_end"),
    columns(sa.String(3), "currency"),
    columns(sa.Text, "total"),
    columns(sa.String(16), "status"),
    columns(sa.Integer, "attempts"),  # payments that were declined
    columns(Moment, "due_at"),
    columns(Moment, "charge_at NULL"),  # when the next payment is tried without a request
    columns(Moment, "paid_at NULL, created_at, updated_at"),
    # If two processes close a month of an organization at once, one has no effect.
    sa.UniqueConstraint("organization_id", "period_start", "currency"),
    one_of("status", "open", "paid", "failed", "void"),
    sa.CheckConstraint("(status = 'paid') = (paid_at IS NOT NULL)", name="paid_at"),
    indexes("organization_id, id"),
)

invoice_lines = table(
    "invoice_lines",
    refers("invoice_id KEY", "invoices", "CASCADE"),
    columns(sa.Integer, "position KEY"),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False, index=True),
    columns(ByteOrdered, "region, sku"),
    columns(Moment, "month"),  # the beginning of the month of the usage
    columns(sa.Text, "unit, quantity, unit_amount, amount"),
)

billed_usage = table(
    "billed_usage",
    refers("account_id KEY", "accounts"),
    columns(ByteOrdered, "region KEY, sku KEY"),
    columns(Moment, "month KEY"),
    columns(sa.BigInteger, "quantity"),  # of the smallest unit, over all invoices
)

closed_months = table(
    "closed_months",
    columns(Moment, "month KEY, closed_at"),
)

invoice_charges = table(
    "invoice_charges",
    columns(Id, "id KEY"),  # also the processor's idempotency key
    columns(Id, "organization_id"),
    refers("invoice_id", "invoices", "CASCADE"),
    columns(Id, "payment_method_id"),
    # the display name of the method, which stays when the method is deleted
    columns(sa.Text, "method"),
    columns(sa.String(16), "processor"),
    columns(sa.Text, "method_reference, amount"),
    columns(sa.String(3), "currency"),
    columns(sa.String(16), "state"),
    # the processor's id of the charge, known before money moves
    columns(sa.Text, "reference NULL"),
    columns(sa.Text, "code NULL"),  # why it was declined
    columns(sa.Text, "message NULL"),
    columns(sa.String(64), "request_key NULL"),  # SHA-256 of the Idempotency-Key that asked for it
    columns(Moment, "created_at, ended_at NULL"),
    one_of("state", "pending", "succeeded", "declined"),
    sa.CheckConstraint("(state = 'pending') = (ended_at IS NULL)", name="ended_at"),
    sa.UniqueConstraint("invoice_id", "request_key"),
    # One payment of an invoice at a time, and one that succeeds.
    unique_index("live", "invoice_id", "state IN ('pending', 'succeeded')"),
    named_index("pending", "payment_method_id", "state = 'pending'"),
)

embedded_charges = table(
    "embedded_charges",
    columns(sa.Text, "amount"),
    columns(sa.String(3), "currency"),
    columns(sa.Text, "decline"),  # empty: it was paid
    columns(Moment, "charged_at"),
)
