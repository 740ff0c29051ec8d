"""Invoices put into the database of an install that is served, whose months would not end."""

from __future__ import annotations

import sqlite3
from typing import Final

from cloudcore.clock import system_clock, uuid7

OCTOBER: Final = 1_790_812_800_000_000
"""The beginning of October 2026."""
_INVOICE: Final = """
    INSERT INTO invoices (id, organization_id, period_start, period_end, currency, total, status,
        attempts, due_at, created_at, updated_at)
    SELECT :id, organization_id, :start, :end, 'EUR', '12.34', :status, :attempts,
        :now, :now, :now
    FROM accounts WHERE handle = 'acme'
"""
_LINE: Final = """
    INSERT INTO invoice_lines (invoice_id, position, account_id, region, sku, month, unit, quantity,
        unit_amount, amount)
    SELECT :id, 0, id, 'local', 'registry.storage', :start, 'GiB-month', '617', '0.02', '12.34'
    FROM accounts WHERE handle = 'acme'
"""


def owe(
    database: sqlite3.Connection, start: int = OCTOBER, status: str = "open", attempts: int = 0
) -> str:
    """Insert an invoice of acme's organization for 31 days from a moment on; return its id."""
    of = {"id": uuid7(), "start": start, "status": status, "attempts": attempts}
    database.execute(_INVOICE, {**of, "end": start + 31 * 86_400_000_000, "now": system_clock()})
    database.execute(_LINE, of)
    database.commit()
    return str(of["id"])
