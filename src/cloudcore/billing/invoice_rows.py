"""Queries of invoices, their lines and charges, and of billed usage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.billing.tables import (
    billed_usage,
    closed_months,
    invoice_charges,
    invoice_lines,
    invoices,
)
from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, bound, columns_of, count, given, insert_new
from cloudcore.db.statement import Statement, named, page
from cloudcore.errors import NotFound
from cloudcore.wire import moment_of, rfc3339

_i = invoices.c
_l = invoice_lines.c
_c = invoice_charges.c
_b = billed_usage.c
_OF: Final = _i.organization_id == sa.bindparam("of_organization")


_NAME: Final = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])-([A-Z]{3})")


class Invoice(NamedTuple):
    """The debt of an organization for a month, in one currency."""

    id: str
    organization_id: str
    period_start: int
    period_end: int
    currency: str
    total: str
    status: str
    attempts: int
    """The number of declined payments."""
    due_at: int
    charge_at: int | None
    """When the next payment is tried without a request."""
    paid_at: int | None
    created_at: int
    updated_at: int

    @property
    def name(self) -> str:
        """Return the invoice's display name, such as ``2026-10-EUR``."""
        return f"{rfc3339(self.period_start)[:7]}-{self.currency}"


class Asked(NamedTuple):
    """The filter of a list of an organization's invoices; empty values select all invoices."""

    status: str = ""
    name: str = ""

    def parameters(self) -> dict[str, object]:
        """Return the parameters of the statements; a malformed name matches no invoice."""
        found = _NAME.fullmatch(self.name)
        month = datetime(int(found[1]), int(found[2]), 1, tzinfo=UTC) if found else None
        return {
            **self._asdict(),
            "month": -1 if month is None else moment_of(month),
            "currency": found[3] if found else "",
        }


class Line(NamedTuple):
    """The usage of one SKU by an account in a month, with its cost."""

    account_id: str
    region: str
    sku: str
    month: int
    """The beginning of the month of the usage; earlier than that of the invoice for usage that was
    reported late."""
    unit: str
    quantity: str
    unit_amount: str
    amount: str
    handle: str = ""
    """The name of the account; not stored here."""


class Charge(NamedTuple):
    """One payment of an invoice; stored before the processor is called, the outcome afterwards."""

    id: str
    organization_id: str
    invoice_id: str
    payment_method_id: str
    method: str
    processor: str
    method_reference: str
    amount: str
    currency: str
    state: str
    reference: str | None
    """The processor's id of the payment; None until it is prepared."""
    code: str | None
    message: str | None
    request_key: str | None
    created_at: int
    ended_at: int | None


_every: Final = columns_of(invoices, Invoice._fields).where(_OF)
_one: Final = _every.where(_i.id == sa.bindparam("of_id"))
_FIND: Final = Statement(_one)
_LOCK: Final = Statement(_one.with_for_update())
_OWNER: Final = Statement(sa.select(_i.organization_id).where(_i.id == sa.bindparam("of_id")))
_asked: Final = sa.and_(
    named(_i.status, "status"),
    sa.or_(
        sa.bindparam("name") == sa.text("''"),
        sa.and_(_i.period_start == sa.bindparam("month"), given(_i.currency)),
    ),
)
_LIST: Final = Statement(page(_every.where(_asked, _i.id > sa.bindparam("after")).order_by(_i.id)))
_COUNT: Final = Statement(sa.select(sa.func.count()).select_from(invoices).where(_OF, _asked))
_ADD: Final = Statement(insert_new(invoices, Invoice._fields))
_CHANGED: Final = ("status", "attempts", "charge_at", "paid_at", "updated_at")
_SAVE: Final = Statement(
    invoices.update().where(_OF, _i.id == sa.bindparam("of_id")).values(bound(_CHANGED))
)
_OF_MONTH: Final = Statement(
    sa.select(ONE).select_from(invoices).where(_OF, _i.period_start == sa.bindparam("month"))
)
_STORED: Final = ("invoice_id", "position", *Line._fields[:-1])
_ADD_LINE: Final = Statement(insert_new(invoice_lines, _STORED))
_accounts: Final = sa.table(
    "accounts", sa.column("id", sa.String()), sa.column("handle", sa.String())
)
_LINES: Final = Statement(
    sa.select(*(_l[name] for name in Line._fields[:-1]), _accounts.c.handle)
    .select_from(invoice_lines)
    .join(invoices, _i.id == _l.invoice_id)
    .join(_accounts, _accounts.c.id == _l.account_id)
    .where(_OF, _l.invoice_id == sa.bindparam("of_id"))
    .order_by(_l.position)
)


def find_invoice(tx: Connection, organization_id: str, invoice_id: str) -> Invoice | None:
    """Return an invoice of an organization, or None if there is none."""
    row = tx.row(_FIND, of_organization=organization_id, of_id=invoice_id)
    return Invoice(*row) if row else None


def get_invoice(tx: Connection, organization_id: str, invoice_id: str) -> Invoice:
    """Return an invoice of an organization, or raise `NotFound`."""
    found = find_invoice(tx, organization_id, invoice_id)
    if found is None:
        raise NotFound("there is no such invoice")
    return found


def lock_invoice(tx: Connection, organization_id: str, invoice_id: str) -> Invoice:
    """Return an invoice, locked until `tx` ends, or raise `NotFound`."""
    row = tx.row(_LOCK, of_organization=organization_id, of_id=invoice_id)
    if row is None:
        raise NotFound("there is no such invoice")
    return Invoice(*row)


def owner_of(tx: Connection, invoice_id: str) -> str:
    """Return the id of an invoice's organization, or raise `NotFound`."""
    row = tx.row(_OWNER, of_id=invoice_id)
    if row is None:
        raise NotFound("there is no such invoice")
    return str(row[0])


def list_invoices(
    tx: Connection, organization_id: str, asked: Asked, after: str, limit: int
) -> Sequence[Invoice]:
    """Return a page of an organization's invoices after an id, oldest first."""
    of = {"of_organization": organization_id, **asked.parameters()}
    return [Invoice(*row) for row in tx.rows(_LIST, **of, after=after, limit=limit)]


def count_invoices(tx: Connection, organization_id: str, asked: Asked) -> int:
    """Count the invoices that `list_invoices` returns on all its pages."""
    return count(tx, _COUNT, of_organization=organization_id, **asked.parameters())


def lines_of(tx: Connection, organization_id: str, invoice_id: str) -> Sequence[Line]:
    """Return the lines of an invoice, sorted by account and SKU."""
    rows = tx.rows(_LINES, of_organization=organization_id, of_id=invoice_id)
    return [Line(*row) for row in rows]


def has_invoice(tx: Connection, organization_id: str, month: int) -> bool:
    """Return True if an organization has an invoice for the month that begins at `month`."""
    return tx.row(_OF_MONTH, of_organization=organization_id, month=month) is not None


def add_invoice(tx: Connection, new: Invoice, lines: Sequence[Line]) -> bool:
    """Insert an invoice with its lines; return False if one exists for its month and currency."""
    if tx.execute(_ADD, **new._asdict()) != 1:
        return False
    for position, line in enumerate(lines):
        values = line._asdict()
        del values["handle"]
        tx.execute(_ADD_LINE, invoice_id=new.id, position=position, **values)
    return True


def save_invoice(tx: Connection, changed: Invoice) -> Invoice:
    """Store the mutable fields of an invoice; return the invoice."""
    values = {name: getattr(changed, name) for name in _CHANGED}
    tx.execute(_SAVE, of_organization=changed.organization_id, of_id=changed.id, **values)
    return changed


_charges: Final = columns_of(invoice_charges, Charge._fields).where(
    _c.organization_id == sa.bindparam("of_organization"),
    _c.invoice_id == sa.bindparam("of_invoice"),
)
_PENDING: Final = Statement(_charges.where(_c.state == sa.text("'pending'")))
_ASKED_BY: Final = Statement(_charges.where(given(_c.request_key)))
_ADD_CHARGE: Final = Statement(insert(invoice_charges).values(bound(Charge._fields)))
_PREPARED: Final = Statement(
    invoice_charges.update()
    .where(_c.id == sa.bindparam("of_id"))
    .values(reference=sa.bindparam("reference"))
)
_END: Final = Statement(
    invoice_charges.update()
    .where(_c.id == sa.bindparam("of_id"), _c.state == sa.text("'pending'"))
    .values(bound(("state", "code", "message", "ended_at")))
)


def pending_charge(tx: Connection, organization_id: str, invoice_id: str) -> Charge | None:
    """Return the unfinished payment of an invoice, or None."""
    row = tx.row(_PENDING, of_organization=organization_id, of_invoice=invoice_id)
    return Charge(*row) if row else None


def charge_asked_by(
    tx: Connection, organization_id: str, invoice_id: str, request_key: str
) -> Charge | None:
    """Return the payment that a request with this key began for an invoice, or None."""
    asked = {"of_organization": organization_id, "of_invoice": invoice_id}
    row = tx.row(_ASKED_BY, **asked, request_key=request_key)
    return Charge(*row) if row else None


def add_charge(tx: Connection, new: Charge) -> None:
    """Insert a payment; a constraint allows only one unfinished payment of each invoice."""
    tx.execute(_ADD_CHARGE, **new._asdict())


def note_prepared(tx: Connection, charge_id: str, reference: str) -> None:
    """Store the processor's id of a payment."""
    tx.execute(_PREPARED, of_id=charge_id, reference=reference)


def end_charge(
    tx: Connection, charge_id: str, state: str, code: str | None, message: str | None, now: int
) -> bool:
    """Store the outcome of a payment; return False if it has already ended."""
    ended = {"state": state, "code": code, "message": message, "ended_at": now}
    return tx.execute(_END, of_id=charge_id, **ended) == 1


_KEY: Final = ("account_id", "region", "sku", "month")

_BILLED: Final = Statement(
    sa.select(_b.region, _b.sku, _b.month, _b.quantity).where(
        given(_b.account_id), _b.month >= sa.bindparam("from_month")
    )
)
_NOTE_FIRST: Final = Statement(insert_new(billed_usage, (*_KEY, "quantity")))
_NOTE_MORE: Final = Statement(
    billed_usage.update()
    .where(
        *(_b[name] == sa.bindparam(f"of_{name}") for name in _KEY),
        _b.quantity == sa.bindparam("before"),
    )
    .values(quantity=sa.bindparam("quantity"))
)
_CLOSE: Final = Statement(insert_new(closed_months, ("month", "closed_at")))
_LAST: Final = Statement(sa.select(sa.func.max(closed_months.c.month)))
_REOPEN: Final = Statement(
    closed_months.delete().where(closed_months.c.month > sa.bindparam("last"))
)


class BilledUse(NamedTuple):
    """The usage of one SKU by an account in a month."""

    account_id: str
    region: str
    sku: str
    month: int


def billed(tx: Connection, account_id: str, from_month: int) -> dict[BilledUse, int]:
    """Return the billed quantities of an account, from the month `from_month` on."""
    rows = tx.rows(_BILLED, account_id=account_id, from_month=from_month)
    return {
        BilledUse(account_id, region, sku, month): int(sum_) for region, sku, month, sum_ in rows
    }


def note_billed(tx: Connection, use: BilledUse, before: int, quantity: int) -> bool:
    """Set the billed quantity of a usage; return False if the stored quantity is not `before`."""
    if before == 0 and tx.execute(_NOTE_FIRST, **use._asdict(), quantity=quantity) == 1:
        return True
    key = {f"of_{name}": value for name, value in use._asdict().items()}
    return tx.execute(_NOTE_MORE, **key, before=before, quantity=quantity) == 1


def note_closed(tx: Connection, month: int, now: int) -> None:
    """Store that a month is closed for all organizations."""
    tx.execute(_CLOSE, month=month, closed_at=now)


def last_closed(tx: Connection) -> int | None:
    """Return the beginning of the last closed month, or None if none is closed."""
    row = tx.row(_LAST)
    return row[0] if row else None


def reopen_months(tx: Connection, last: int) -> None:
    """Mark all months after `last` as not closed."""
    tx.execute(_REOPEN, last=last)
