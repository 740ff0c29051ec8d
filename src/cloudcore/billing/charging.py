"""Pay an invoice exactly once, even if processes crash meanwhile.

The row of a charge is committed before the processor is called, and the charge's id is the
processor's idempotency key. A job resumes a charge with an unknown outcome, and no other charge of
the invoice begins until that charge has ended.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

from cloudcore.account_rows import accounts_of
from cloudcore.billing import invoice_rows as rows
from cloudcore.billing.description import PAID, PAYMENT_FAILED
from cloudcore.billing.invoice_rows import Charge, Invoice
from cloudcore.billing.needs import BillingNeeds
from cloudcore.billing.payment_method_rows import PaymentMethod, default_method, get_method
from cloudcore.billing.payment_method_services import customer_of
from cloudcore.billing.processor import Declined, Order
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvoicePaymentAttemptsExhausted, PaymentDeclined
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import Job, NewJob, enqueue

MAX_ATTEMPTS: Final = 5
"""After so many declined payments of an invoice, no further payment is tried."""
KIND: Final = "billing.payment"
_DAY: Final = 24 * 3600
_TAKEN_UP_SECONDS: Final = 300
"""After this time the job resumes a charge that a request began; by then the request has ended."""


def begin_charge(
    tx: Connection,
    needs: BillingNeeds,
    organization_id: str,
    invoice_id: str,
    method_id: str | None = None,
    request_key: str | None = None,
) -> Charge | None:
    """Insert a charge for an invoice, and the job that resumes it, before the processor is called.

    If a request with this `request_key` has begun a charge before, return that charge, in any
    state. Return None if the invoice is paid.

    Raises:
        NotFound: there is no such invoice or payment method.
        Conflict: the invoice is void, or being paid; there is no payment method, or the method
            belongs to another processor.
        InvoicePaymentAttemptsExhausted: the invoice was declined `MAX_ATTEMPTS` times.

    """
    invoice = rows.lock_invoice(tx, organization_id, invoice_id)
    if request_key is not None:
        known = rows.charge_asked_by(tx, organization_id, invoice_id, request_key)
        if known is not None:
            return known
    if invoice.status == "paid":
        return None
    _check_payable(invoice)
    if rows.pending_charge(tx, organization_id, invoice_id) is not None:
        raise Conflict("a payment of this invoice is under way", reason="in_progress")
    method = _method(tx, needs, organization_id, method_id)
    now = needs.clock()
    charge = Charge(
        id=needs.new_id(),
        organization_id=organization_id,
        invoice_id=invoice.id,
        payment_method_id=method.id,
        method=method.display_name,
        processor=method.processor,
        method_reference=method.reference,
        amount=invoice.total,
        currency=invoice.currency,
        state="pending",
        reference=None,
        code=None,
        message=None,
        request_key=request_key,
        created_at=now,
        ended_at=None,
    )
    rows.add_charge(tx, charge)
    wake(tx, invoice, now, delay_seconds=_TAKEN_UP_SECONDS)
    return charge


def _check_payable(invoice: Invoice) -> None:
    if invoice.status == "void":
        raise Conflict("the invoice is void: nobody has to pay it", reason="is_void")
    if invoice.attempts >= MAX_ATTEMPTS:
        raise InvoicePaymentAttemptsExhausted(
            f"the invoice was declined {invoice.attempts} times; ask the operator"
        )


def _method(
    tx: Connection, needs: BillingNeeds, organization_id: str, method_id: str | None
) -> PaymentMethod:
    found = (
        default_method(tx, organization_id)
        if method_id is None
        else get_method(tx, organization_id, method_id)
    )
    if found is None:
        raise Conflict(
            "the organization has no payment method; add one first", reason="no_payment_method"
        )
    if found.processor != needs.processor.name:
        raise Conflict(
            f"the payment method is one of the processor {found.processor}, which is not in use"
            " any more; add it anew",
            reason="other_processor",
        )
    return found


def wake(tx: Connection, invoice: Invoice, now: int, *, delay_seconds: float = 0) -> None:
    """Make the job of an invoice due in `delay_seconds`, unless it is due earlier."""
    enqueue(
        tx,
        NewJob(
            KIND,
            {"organization_id": invoice.organization_id, "invoice_id": invoice.id},
            dedup_key=invoice.id,
            delay_seconds=delay_seconds,
            hastens=True,
        ),
        now,
    )


async def settle(needs: BillingNeeds, charge: Charge) -> Declined | None:
    """Charge through the processor; return why the charge was declined, or None if it was paid.

    Raise `Unavailable` if the outcome is unknown.
    """
    customer = await customer_of(needs, charge.organization_id)
    order = Order(charge.id, customer, charge.method_reference, charge.amount, charge.currency)
    try:
        reference = charge.reference
        if reference is None:
            reference = await needs.processor.prepare(order)
            await needs.database.write(rows.note_prepared, charge.id, reference)
        await needs.processor.charge(reference, order)
    except Declined as declined:
        return declined
    return None


def record(
    tx: Connection, needs: BillingNeeds, charge: Charge, declined: Declined | None
) -> Invoice:
    """Store the outcome of a charge, update the invoice and publish an event; return the invoice.

    If an outcome is already stored, change nothing.
    """
    now = needs.clock()
    invoice = rows.lock_invoice(tx, charge.organization_id, charge.invoice_id)
    state = "succeeded" if declined is None else "declined"
    code, words = (None, None) if declined is None else (declined.code, declined.message)
    if not rows.end_charge(tx, charge.id, state, code, words, now):
        return invoice
    if declined is None:
        changed = invoice._replace(status="paid", paid_at=now, charge_at=None, updated_at=now)
    else:
        attempts = invoice.attempts + 1
        is_over = attempts >= MAX_ATTEMPTS
        changed = invoice._replace(
            attempts=attempts,
            status="failed" if is_over else invoice.status,
            charge_at=None if is_over else now + _DAY * MICROSECONDS,
            updated_at=now,
        )
    rows.save_invoice(tx, changed)
    emit_event(tx, needs, PAID if declined is None else PAYMENT_FAILED, changed, now)
    return changed


def emit_event(tx: Connection, needs: BillingNeeds, event: str, invoice: Invoice, now: int) -> None:
    """Publish an invoice event to all accounts of the organization; call this last in `tx`."""
    told = {
        "invoice": {"id": invoice.id},
        "currency": invoice.currency,
        "total": invoice.total,
        "status": invoice.status,
        "attempts": invoice.attempts,
    }
    for account_id, _ in accounts_of(tx, invoice.organization_id):
        needs.events.emit(tx, account_id, event, [told], now)


def refused(charge: Charge, declined: Declined) -> PaymentDeclined:
    """Return the error for a charge that was declined."""
    return PaymentDeclined(
        f"the payment was declined: {declined.message}",
        code=declined.code,
        payment_method_id=charge.payment_method_id,
    )


async def pay(needs: BillingNeeds, job: Job) -> Next | Done:
    """Continue the payment of an invoice: resume a charge, or begin one when it is due."""
    place = job.arguments["organization_id"], job.arguments["invoice_id"]
    done = Done(partial(_look_again, *place, needs.clock()))
    invoice = await needs.database.read(rows.find_invoice, *place)
    if invoice is None or invoice.status != "open":
        return done
    charge = await needs.database.read(rows.pending_charge, *place)
    if charge is None:
        wait = ((invoice.charge_at or 0) - needs.clock()) / MICROSECONDS
        if wait > 0:
            return Next(None, delay_seconds=wait)
        try:
            charge = await needs.database.write(begin_charge, needs, *place)
        except Conflict:  # no payment method: another day
            return Next(None, delay_seconds=_DAY)
        if charge is None:
            return done
    declined = await settle(needs, charge)
    # Run again at once, to end or to wait for the next day.
    return Next(None, partial(record, needs=needs, charge=charge, declined=declined))


def _look_again(organization_id: str, invoice_id: str, now: int, tx: Connection) -> None:
    """Wake the job if its invoice is open: a wake that came while the job ran was lost."""
    invoice = rows.find_invoice(tx, organization_id, invoice_id)
    if invoice is not None and invoice.status == "open":
        wake(tx, invoice, now)


def job_kind(needs: BillingNeeds) -> JobKind:
    """Return the kind of job that pays invoices."""
    return JobKind(
        name=KIND,
        step=partial(pay, needs),
        max_attempts=None,
        first_retry_seconds=60,
        longest_retry_seconds=3600,
        slots=4,
    )


Decision = Literal["void", "settle", "retry"]
ACTIONS: Final = {
    "void": "billing:VoidInvoice",
    "settle": "billing:SettleInvoice",
    "retry": "billing:RetryInvoice",
}
"""The actions in the audit log of the organization."""


def decide(tx: Connection, invoice_id: str, decision: Decision, now: int) -> Invoice:
    """Void an invoice, mark it as paid by other means (settle), or allow new attempts (retry).

    Return the invoice. Raise `NotFound` if there is no such invoice; `Conflict` if it is paid or
    void, or a payment is under way.
    """
    organization_id = rows.owner_of(tx, invoice_id)
    invoice = rows.lock_invoice(tx, organization_id, invoice_id)
    if invoice.status in ("paid", "void"):
        raise Conflict(f"the invoice is {invoice.status}")
    if rows.pending_charge(tx, organization_id, invoice_id) is not None:
        raise Conflict("a payment of the invoice is under way; its outcome comes first")
    if decision == "void":
        changed = invoice._replace(status="void", charge_at=None, updated_at=now)
    elif decision == "settle":
        changed = invoice._replace(status="paid", charge_at=None, paid_at=now, updated_at=now)
    else:
        changed = invoice._replace(status="open", attempts=0, charge_at=now, updated_at=now)
        wake(tx, invoice, now)
    return rows.save_invoice(tx, changed)
