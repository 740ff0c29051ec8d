"""Queries of payment methods, and of organizations' customer ids at a processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from cloudcore.billing.tables import invoice_charges, invoices, payment_customers, payment_methods
from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, bound, columns_of, count, given, insert_new
from cloudcore.db.statement import Statement, page
from cloudcore.errors import NotFound

_m = payment_methods.c
_OF: Final = _m.organization_id == sa.bindparam("of_organization")


class PaymentMethod(NamedTuple):
    """A card or bank account of an organization."""

    id: str
    organization_id: str
    type: str
    display_name: str
    brand: str | None
    last4: str | None
    exp_month: int | None
    exp_year: int | None
    is_default: bool
    processor: str
    reference: str
    """The processor's id of the method."""
    created_at: int
    updated_at: int


def _method(*row: Any) -> PaymentMethod:  # noqa: ANN401 - of a database
    found = PaymentMethod(*row)
    return found._replace(is_default=bool(found.is_default))  # SQLite has numbers


_every: Final = columns_of(payment_methods, PaymentMethod._fields).where(_OF)
_FIND: Final = Statement(_every.where(_m.id == sa.bindparam("of_id")))
_DEFAULT: Final = Statement(_every.where(_m.is_default))
_LIST: Final = Statement(page(_every.where(_m.id > sa.bindparam("after")).order_by(_m.id)))
_COUNT: Final = Statement(sa.select(sa.func.count()).select_from(payment_methods).where(_OF))
_ADD: Final = Statement(insert_new(payment_methods, PaymentMethod._fields))
_CHANGED: Final = ("display_name", "is_default", "updated_at")
_SAVE: Final = Statement(
    payment_methods.update().where(_OF, _m.id == sa.bindparam("of_id")).values(bound(_CHANGED))
)
_UNSET: Final = Statement(
    payment_methods.update()
    .where(_OF, _m.is_default)
    .values(is_default=sa.text("false"), updated_at=sa.bindparam("now"))
)
_REMOVE: Final = Statement(payment_methods.delete().where(_OF, _m.id == sa.bindparam("of_id")))
_IS_CHARGED: Final = Statement(
    sa.select(ONE)
    .select_from(invoice_charges)
    .where(
        invoice_charges.c.payment_method_id == sa.bindparam("of_id"),
        invoice_charges.c.state == sa.text("'pending'"),
    )
)
_OWES: Final = Statement(
    sa.select(ONE)
    .select_from(invoices)
    .where(
        invoices.c.organization_id == sa.bindparam("of_organization"),
        invoices.c.status == sa.text("'open'"),
    )
)
_u = payment_customers.c
_CUSTOMER: Final = Statement(sa.select(_u.reference).where(given(_u.organization_id, _u.processor)))
_ADD_CUSTOMER: Final = Statement(
    insert_new(payment_customers, ("organization_id", "processor", "reference"))
)


def get_method(tx: Connection, organization_id: str, method_id: str) -> PaymentMethod:
    """Return a payment method of an organization, or raise `NotFound`."""
    row = tx.row(_FIND, of_organization=organization_id, of_id=method_id)
    if row is None:
        raise NotFound("there is no such payment method")
    return _method(*row)


def default_method(tx: Connection, organization_id: str) -> PaymentMethod | None:
    """Return an organization's default payment method, or None if it has no payment method."""
    row = tx.row(_DEFAULT, of_organization=organization_id)
    return _method(*row) if row else None


def list_methods(
    tx: Connection, organization_id: str, after: str, limit: int
) -> Sequence[PaymentMethod]:
    """Return a page of an organization's payment methods after the id `after`, oldest first."""
    rows = tx.rows(_LIST, of_organization=organization_id, after=after, limit=limit)
    return [_method(*row) for row in rows]


def count_methods(tx: Connection, organization_id: str) -> int:
    """Count the payment methods of an organization."""
    return count(tx, _COUNT, of_organization=organization_id)


def insert_method(tx: Connection, new: PaymentMethod) -> None:
    """Insert a payment method."""
    tx.execute(_ADD, **new._asdict())


def save_method(tx: Connection, changed: PaymentMethod) -> None:
    """Store the mutable fields of a payment method."""
    values = {name: getattr(changed, name) for name in _CHANGED}
    tx.execute(_SAVE, of_organization=changed.organization_id, of_id=changed.id, **values)


def unset_default(tx: Connection, organization_id: str, now: int) -> None:
    """Clear an organization's default; the caller sets another in the same transaction."""
    tx.execute(_UNSET, of_organization=organization_id, now=now)


def remove_method(tx: Connection, method: PaymentMethod) -> None:
    """Delete a payment method."""
    tx.execute(_REMOVE, of_organization=method.organization_id, of_id=method.id)


def is_being_charged(tx: Connection, method_id: str) -> bool:
    """Return True if a payment with this method is unfinished."""
    return tx.row(_IS_CHARGED, of_id=method_id) is not None


def owes(tx: Connection, organization_id: str) -> bool:
    """Return True if an organization has an open invoice."""
    return tx.row(_OWES, of_organization=organization_id) is not None


def find_customer(tx: Connection, organization_id: str, processor: str) -> str | None:
    """Return an organization's customer id at a processor, or None."""
    row = tx.row(_CUSTOMER, organization_id=organization_id, processor=processor)
    return row[0] if row else None


def add_customer(tx: Connection, organization_id: str, processor: str, reference: str) -> str:
    """Store an organization's customer id at a processor; return the id that was stored first."""
    given = {"organization_id": organization_id, "processor": processor}
    tx.execute(_ADD_CUSTOMER, **given, reference=reference)
    return find_customer(tx, organization_id, processor) or reference
