"""``/v1/invoices``: what an organization owes for each month, and its payment."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal

from litestar import get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from cloudcore.account_rows import organization_name
from cloudcore.billing import charging
from cloudcore.billing import invoice_rows as rows
from cloudcore.billing.access import OrganizationId, Scope, authorized, organization_policy
from cloudcore.billing.invoice_rows import Invoice, Line
from cloudcore.billing.needs import BillingNeeds
from cloudcore.billing.processor import Declined
from cloudcore.db.base import Connection
from cloudcore.errors import Unavailable
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import answer_of
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.organization_scope import account_ref, organization_ref
from cloudcore.web.pagination import NamedPageQuery, PageMeta, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

_PATH: Final = "/v1/invoices"
_ONE: Final = _PATH + "/{invoice_id:str}"
_KIND: Final = "invoice"
Status = Literal["open", "paid", "failed", "void"]


class ListInvoices(NamedPageQuery, kw_only=True):
    """A page of invoices."""

    status: Status | None = None
    """Only invoices in this state."""
    organization_id: OrganizationId | None = None


class PayInvoice(RequestBody):
    """The payment of an invoice."""

    payment_method: Uuid | None = None
    """Id of the payment method; by default the organization's default one."""


class InvoiceLine(ResponseBody):
    """The usage of one SKU by an account in a month, and its cost."""

    account: ResourceRef
    region: str
    sku: str
    month: RFC3339
    """The beginning of the month of the usage; earlier than that of the invoice for usage that was
    reported late."""
    unit: str
    quantity: str
    """Decimal number of units, rounded to six decimals."""
    unit_amount: str
    """Decimal number: the price of one unit."""
    amount: str
    """Decimal number: what the exact quantity costs, rounded half up to the smallest unit of the
    currency."""


class InvoiceRecord(ResponseBody):
    """What an organization owes for a month, in one currency."""

    id: Uuid
    name: str
    """Month and currency, such as ``2026-10-EUR``; unique in the organization."""
    organization: ResourceRef
    period_start: RFC3339
    period_end: RFC3339
    """The first moment after the period."""
    currency: str
    """ISO 4217."""
    total: str
    """Decimal number: the sum of the lines."""
    status: Status
    attempts: int
    """The number of declined payments; after five the invoice has failed."""
    due_at: RFC3339
    paid_at: RFC3339 | None
    created_at: RFC3339
    updated_at: RFC3339
    lines: Sequence[InvoiceLine] | UnsetType = UNSET
    """Absent in lists."""


class OneInvoice(ResponseBody):
    """The body of an answer: an invoice."""

    invoice: InvoiceRecord


class ManyInvoices(ResponseBody):
    """A page of invoices."""

    invoices: Sequence[InvoiceRecord]
    meta: PageMeta


def _record(
    invoice: Invoice, name: str, lines: Sequence[Line] | UnsetType = UNSET
) -> InvoiceRecord:
    return answer_of(
        InvoiceRecord,
        invoice,
        organization=organization_ref(invoice.organization_id, name),
        lines=lines if lines is UNSET else [_line(each) for each in lines],
    )


def _line(line: Line) -> InvoiceLine:
    return answer_of(InvoiceLine, line, account=account_ref(line.account_id, line.handle))


def shown(tx: Connection, invoice: Invoice) -> OneInvoice:
    """Return the answer for an invoice, with its lines."""
    name = organization_name(tx, invoice.organization_id)
    return OneInvoice(
        invoice=_record(invoice, name, rows.lines_of(tx, invoice.organization_id, invoice.id))
    )


def shown_one(tx: Connection, organization_id: str, invoice_id: str) -> OneInvoice:
    """Return the answer for an invoice of an organization, or raise `NotFound`."""
    return shown(tx, rows.get_invoice(tx, organization_id, invoice_id))


@get(_PATH, opt={"action": "billing:ListInvoices", "query": ListInvoices, "statuses": (404,)})
async def list_invoices(ctx: Context) -> ManyInvoices:
    """List the invoices of the account's organization, oldest first, without their lines.

    A month is closed two hours after its end, in UTC. A person with the role `owner` or `billing`
    in an organization names it by `organization_id`.
    """
    query = ctx.query(ListInvoices)
    organization_id = await authorized(ctx, _KIND, "*", query.organization_id)
    found, meta = await read_page(
        ctx,
        query,
        rows.list_invoices,
        rows.count_invoices,
        organization_id,
        rows.Asked(query.status or "", query.name or ""),
        key=lambda invoice: invoice.id,
    )
    name = await ctx.database.read(organization_name, organization_id)
    return ManyInvoices(invoices=[_record(each, name) for each in found], meta=meta)


@get(_ONE, opt={"action": "billing:GetInvoice", "query": Scope})
async def get_invoice(invoice_id: FromPath[str], ctx: Context) -> OneInvoice:
    """Return an invoice with its lines."""
    asked = ctx.query(Scope).organization_id
    organization_id = await authorized(ctx, _KIND, invoice_id, asked)

    return await ctx.database.read(shown_one, organization_id, invoice_id)


@post(
    _ONE + "/pay",
    status_code=200,
    opt={
        "action": "billing:PayInvoice",
        "idempotent": True,
        "resource_policy": organization_policy,
        "query": Scope,
        "statuses": (402, 409, 429),
        "silent_limit": True,
    },
)
async def pay_invoice(
    invoice_id: FromPath[str],
    ctx: Context,
    needs: Needs[BillingNeeds],
    data: JSONBody[PayInvoice | None] = None,
) -> Reply[OneInvoice]:
    """Pay an invoice now; one that is paid stays as it is.

    A payment that is declined is 402; after five of an invoice, further ones are 429. If the
    processor has not decided, or does not answer, the answer has the invoice, still open, and its
    payment continues in the background.
    """
    asked = ctx.query(Scope).organization_id
    organization_id = await authorized(ctx, _KIND, invoice_id, asked)
    method_id = None if data is None else data.payment_method
    charge = await needs.database.write(
        charging.begin_charge, needs, organization_id, invoice_id, method_id, _request_key(ctx)
    )
    if charge is None:  # it is paid
        return await ctx.commit(shown_one, organization_id, invoice_id, details=lambda _: None)
    outcome: Declined | None = None
    is_known = True
    if charge.state == "declined":  # by an earlier try of this request
        outcome = Declined(charge.code or "", charge.message or "")
    elif charge.state == "pending":
        try:
            outcome = await charging.settle(needs, charge)
        except Unavailable:  # the job continues the payment
            is_known = False
    if outcome is not None:
        await ctx.database.write(charging.record, needs, charge, outcome)
        raise charging.refused(charge, outcome)

    def paid(tx: Connection) -> OneInvoice:
        if is_known:
            charging.record(tx, needs, charge, None)
        return shown_one(tx, organization_id, invoice_id)

    return await ctx.commit(paid)


def _request_key(ctx: RequestContext) -> str | None:
    """Return the key that identifies repeated requests; None without an ``Idempotency-Key``."""
    if ctx.claim is None:
        return None
    return hashlib.sha256(ctx.claim.scope.sealing_context.encode()).hexdigest()
