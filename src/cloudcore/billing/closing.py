"""Close a month: make the invoice of each organization from the usage of its accounts.

Billed quantities are stored for each account, SKU and month. An invoice has the unbilled usage of
its month and of earlier months. So usage that is reported late is on the next invoice, and no usage
is on two invoices. The database compares the billed quantities again when the invoice is inserted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Final, NamedTuple

import sqlalchemy as sa

from cloudcore.account_rows import accounts_of, list_organizations, lock_organization
from cloudcore.billing import invoice_rows as rows
from cloudcore.billing.charging import emit_event, wake
from cloudcore.billing.description import CREATED
from cloudcore.billing.invoice_rows import BilledUse, Invoice, Line
from cloudcore.billing.money import amount_of, shown_quantity, total_of
from cloudcore.billing.needs import BillingNeeds, Price
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict
from cloudcore.metering.usage import HOUR, usage_hours
from cloudcore.wire import moment_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def month_of(moment: int) -> int:
    """Return the start of the UTC month that contains `moment`; both are in microseconds."""
    at = _EPOCH + timedelta(seconds=moment // MICROSECONDS)
    return moment_of(datetime(at.year, at.month, 1, tzinfo=UTC))


def month_after(month: int, count: int = 1) -> int:
    """Return the start of the month `count` months later; a negative count goes back."""
    at = _EPOCH + timedelta(seconds=month // MICROSECONDS)
    years, index = divmod(at.year * 12 + at.month - 1 + count, 12)
    return moment_of(datetime(years, index + 1, 1, tzinfo=UTC))


def months_between(first: int, last: int) -> Iterator[int]:
    """Yield the starts of the months from `first` to `last`, inclusive."""
    while first <= last:
        yield first
        first = month_after(first)


GRACE_SECONDS: Final = 2 * 3600
"""How long after its end a month stays open, for usage that is reported with a delay."""
LATE_MONTHS: Final = 24
"""How many months back late usage is billed; metering keeps its sums for as long."""
DUE_SECONDS: Final = 14 * 24 * 3600
_PAGE: Final = 100

_log = logging.getLogger(__name__)

_u = usage_hours.c
_SUMS: Final = Statement(
    sa.select(_u.region, _u.sku, sa.func.sum(_u.quantity))
    .where(
        given(_u.account_id),
        _u.hour >= sa.bindparam("first"),
        _u.hour < sa.bindparam("until"),
    )
    .group_by(_u.region, _u.sku)
)


class Owed(NamedTuple):
    """Usage that is not fully billed."""

    use: BilledUse
    before: int
    """How much of the usage is billed."""
    quantity: int
    """All of the usage."""


class Tariff(NamedTuple):
    """The current prices of the catalogue, and how usage is converted to price units."""

    prices: Mapping[tuple[str, str], Price]
    """The prices by (SKU, region)."""
    divisors: Mapping[str, int]
    """How many units of usage are one unit of the price, by SKU."""

    def line(self, owed: Owed, handle: str) -> tuple[str, Decimal, Line] | None:
        """Return (currency, amount, line) for unbilled usage, or None if its SKU has no price.

        `handle` is the name of the account.
        """
        use, quantity = owed.use, owed.quantity - owed.before
        price = self.prices.get((use.sku, use.region))
        if price is None:
            return None
        per_unit = self.divisors.get(use.sku, 1)
        amount = amount_of(quantity, per_unit, price.amount, price.currency)
        shown = shown_quantity(quantity, per_unit)
        return (
            price.currency,
            amount,
            Line(*use, price.unit, shown, price.amount, str(amount), handle),
        )


def tariff(needs: BillingNeeds) -> Tariff:
    """Return the current prices of the catalogue, with the units of the SKUs."""
    prices = {(each.sku, each.region): each for each in needs.prices()}
    return Tariff(prices, {each.name: each.divisor for each in needs.skus})


async def close_months(needs: BillingNeeds) -> None:
    """Close the months that have ended and are not closed, in order."""
    ended = month_after(month_of(needs.clock() - GRACE_SECONDS * MICROSECONDS), -1)
    last = await needs.database.read(rows.last_closed)
    if last is not None and last > ended:  # the clock was ahead
        await needs.database.write(rows.reopen_months, ended)
        last = await needs.database.read(rows.last_closed)
    first = ended if last is None else month_after(last)
    for month in months_between(first, ended):
        await close_month(needs, month)


async def close_month(needs: BillingNeeds, month: int) -> None:
    """Make the invoices of a month that has ended, and store that it is closed.

    Existing invoices stay. Raise `Conflict` if another process closes the month at the same time;
    then a later call completes the month.
    """
    now_costs, after = tariff(needs), ""
    while found := await needs.database.read(list_organizations, after, _PAGE):
        for organization_id in found:
            await _close(needs, organization_id, month, now_costs)
        after = found[-1]
    await needs.database.write(rows.note_closed, month, needs.clock())


async def _close(needs: BillingNeeds, organization_id: str, month: int, costs: Tariff) -> None:
    handles = dict(await needs.database.read(accounts_of, organization_id))
    owed = [each for account_id in handles for each in await _owed(needs, account_id, month)]
    if owed:
        await needs.database.write(_issue, needs, organization_id, month, owed, handles, costs)


async def _owed(needs: BillingNeeds, account_id: str, month: int) -> Sequence[Owed]:
    """Return the unbilled usage of an account until the end of a month."""
    first = month_after(month, -LATE_MONTHS)
    billed = await needs.database.read(rows.billed, account_id, first)
    found = []
    for each in months_between(first, month):
        for region, sku, quantity in await needs.database.read(_sums, account_id, each):
            use = BilledUse(account_id, region, sku, each)
            before = billed.get(use, 0)
            if quantity > before:
                found.append(Owed(use, before, quantity))
    return found


def _sums(tx: Connection, account_id: str, month: int) -> Sequence[tuple[str, str, int]]:
    first, until = month // HOUR, month_after(month) // HOUR
    found = tx.rows(_SUMS, account_id=account_id, first=first, until=until)
    return [(region, sku, int(quantity)) for region, sku, quantity in found]


def _issue(
    tx: Connection,
    needs: BillingNeeds,
    organization_id: str,
    month: int,
    owed: Sequence[Owed],
    handles: Mapping[str, str],
    costs: Tariff,
) -> None:
    """Insert the invoices of an organization, one for each currency; mark their usage as billed.

    If the organization already has an invoice for the month, do nothing. Usage without a price
    costs nothing, and is marked too: so it is never charged, even if a price is set later.

    Raise `Conflict` if another process billed some of the usage meanwhile.
    """
    lock_organization(tx, organization_id)
    if rows.has_invoice(tx, organization_id, month):
        return
    lines = []
    for each in sorted(owed, key=lambda each: (handles[each.use.account_id], *each.use)):
        if not rows.note_billed(tx, each.use, each.before, each.quantity):
            raise Conflict("another process closes the month")
        line = costs.line(each, handles[each.use.account_id])
        if line is not None:
            lines.append(line)
    issued = []
    by_currency = sorted(lines, key=lambda line: line[0])
    for currency, group in groupby(by_currency, key=lambda line: line[0]):
        made = list(group)
        total = total_of((amount for _, amount, _ in made), currency)
        new = _invoice(needs, organization_id, month, currency, total)
        if not rows.add_invoice(tx, new, [line for _, _, line in made]):
            raise Conflict("another process closes the month")
        if new.status == "open":
            wake(tx, new, new.created_at)
        issued.append(new)
    for invoice in issued:
        emit_event(tx, needs, CREATED, invoice, invoice.created_at)


def _invoice(
    needs: BillingNeeds, organization_id: str, month: int, currency: str, total: Decimal
) -> Invoice:
    """Return a new invoice; if its total is zero, it is already paid."""
    now, is_paid = needs.clock(), not total
    return Invoice(
        id=needs.new_id(),
        organization_id=organization_id,
        period_start=month,
        period_end=month_after(month),
        currency=currency,
        total=str(total),
        status="paid" if is_paid else "open",
        attempts=0,
        due_at=now + DUE_SECONDS * MICROSECONDS,
        charge_at=None if is_paid else now,
        paid_at=now if is_paid else None,
        created_at=now,
        updated_at=now,
    )
