"""``/v1/payment-methods``: list, add, show, change and delete an organization's payment methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from litestar import delete, get, patch, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.billing import payment_method_rows as rows
from cloudcore.billing import payment_method_services as services
from cloudcore.billing.access import OrganizationId, Scope, authorized, organization_policy
from cloudcore.billing.card_numbers import MAX_BODY_BYTES, check_body, check_text
from cloudcore.billing.needs import BillingNeeds
from cloudcore.billing.payment_method_rows import PaymentMethod
from cloudcore.errors import InvalidInput
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import answer_of
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply
from cloudcore.web.pagination import PageMeta, PageQuery, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of

_PATH: Final = "/v1/payment-methods"
_ONE: Final = _PATH + "/{payment_method_id:str}"
_KIND: Final = "payment-method"
MethodType = Literal["card", "sepa_debit"]
DisplayName = Annotated[str, Meta(min_length=1, max_length=100)]
Token = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"\A[A-Za-z0-9_-]+\Z")]


class ListMethods(PageQuery, kw_only=True):
    """A page of payment methods."""

    organization_id: OrganizationId | None = None


class CreatePaymentMethod(RequestBody):
    """A new payment method, by a token of the payment processor: never the number of a card."""

    type: MethodType
    token: Token
    """What the processor gave the browser for the card or bank account, such as ``tok_visa``."""
    display_name: DisplayName | None = None
    """A name for people; by default made of brand and last digits."""
    is_default: bool = False
    """True to pay invoices by it from now on; the first one is the default in any case."""


class UpdatePaymentMethod(RequestBody):
    """Changes of a payment method."""

    display_name: DisplayName | UnsetType | None = UNSET
    """Null: the name is made of brand and last digits."""
    is_default: bool | UnsetType = UNSET
    """True to pay invoices by it from now on, instead of the default before."""


class PaymentMethodRecord(ResponseBody):
    """A payment method."""

    id: Uuid
    type: MethodType
    display_name: str
    is_default: bool
    created_at: RFC3339
    brand: str | UnsetType = UNSET
    """Of a card, such as ``visa``."""
    last4: str | UnsetType = UNSET
    """The last four digits of a card."""
    exp_month: int | UnsetType = UNSET
    """The month in which a card expires."""
    exp_year: int | UnsetType = UNSET
    """The year in which a card expires, of four digits."""


class OnePaymentMethod(ResponseBody):
    """The body of an answer: a payment method."""

    payment_method: PaymentMethodRecord


class ManyPaymentMethods(ResponseBody):
    """A page of payment methods."""

    payment_methods: Sequence[PaymentMethodRecord]
    meta: PageMeta


def _record(method: PaymentMethod) -> PaymentMethodRecord:
    return answer_of(PaymentMethodRecord, method)


def _one(method: PaymentMethod) -> OnePaymentMethod:
    return OnePaymentMethod(payment_method=_record(method))


def _check_name(name: str) -> None:
    check_text(name)
    if not name.isprintable():
        raise InvalidInput(
            "display_name has control characters", field="display_name", reason="malformed"
        )


@post(
    _PATH,
    status_code=201,
    request_max_body_size=MAX_BODY_BYTES,
    opt={
        "action": "billing:CreatePaymentMethod",
        "idempotent": True,
        "resource_policy": organization_policy,
        "check_body": check_body,
        "query": Scope,
        "statuses": (404,),
    },
)
async def create_payment_method(
    data: JSONBody[CreatePaymentMethod], ctx: Context, needs: Needs[BillingNeeds]
) -> Reply[OnePaymentMethod]:
    """Add a payment method to the account's organization, which has at most 20.

    A request with the number of a card in any field is refused, and nothing of it is kept.
    """
    method_id = ctx.new_id()
    asked = ctx.query(Scope).organization_id
    organization_id = await authorized(ctx, _KIND, method_id, asked)
    check_text(data.token)
    if data.display_name is not None:
        _check_name(data.display_name)
    await ctx.database.read(services.check_room, organization_id)  # before the processor stores it
    kept = await services.keep(needs, organization_id, data.type, data.token)
    now = ctx.clock()
    new = PaymentMethod(
        id=method_id,
        organization_id=organization_id,
        type=kept.type,
        display_name=data.display_name or services.name_of(kept),
        brand=kept.brand,
        last4=kept.last4,
        exp_month=kept.exp_month,
        exp_year=kept.exp_year,
        is_default=data.is_default,
        processor=needs.processor.name,
        reference=kept.reference,
        created_at=now,
        updated_at=now,
    )
    return await ctx.commit(
        services.add_method,
        new,
        wrap=_one,
        location=lambda made: f"{_PATH}/{made.id}",
    )


@get(
    _PATH,
    opt={"action": "billing:ListPaymentMethods", "query": ListMethods, "statuses": (404,)},
)
async def list_payment_methods(ctx: Context) -> ManyPaymentMethods:
    """List the payment methods of the account's organization, oldest first.

    A person with the role `owner` or `billing` in an organization names it by `organization_id`.
    """
    query = ctx.query(ListMethods)
    organization_id = await authorized(ctx, _KIND, "*", query.organization_id)
    found, meta = await read_page(
        ctx,
        query,
        rows.list_methods,
        rows.count_methods,
        organization_id,
        key=lambda method: method.id,
    )
    return ManyPaymentMethods(payment_methods=[_record(each) for each in found], meta=meta)


@get(_ONE, opt={"action": "billing:GetPaymentMethod", "query": Scope})
async def get_payment_method(payment_method_id: FromPath[str], ctx: Context) -> OnePaymentMethod:
    """Return a payment method."""
    asked = ctx.query(Scope).organization_id
    organization_id = await authorized(ctx, _KIND, payment_method_id, asked)
    return _one(await ctx.database.read(rows.get_method, organization_id, payment_method_id))


@patch(
    _ONE,
    request_max_body_size=MAX_BODY_BYTES,
    opt={
        "action": "billing:UpdatePaymentMethod",
        "check_body": check_body,
        "query": Scope,
    },
)
async def update_payment_method(
    payment_method_id: FromPath[str], data: JSONBody[UpdatePaymentMethod], ctx: Context
) -> Reply[OnePaymentMethod]:
    """Change the name of a payment method, or make it the default."""
    asked = ctx.query(Scope).organization_id
    organization_id = await authorized(ctx, _KIND, payment_method_id, asked)
    changes: dict[str, Any] = changes_of(data)
    now = ctx.clock()
    if changes.get("display_name") is not None:
        _check_name(changes["display_name"])
    return await ctx.commit(
        services.update_method,
        organization_id,
        payment_method_id,
        changes,
        now,
        wrap=_one,
        details=lambda method: {} if method.updated_at == now else None,
    )


@delete(_ONE, opt={"action": "billing:DeletePaymentMethod", "query": Scope, "statuses": (409,)})
async def delete_payment_method(
    payment_method_id: FromPath[str], ctx: Context, needs: Needs[BillingNeeds]
) -> None:
    """Delete a payment method.

    The default one stays (409) while there are others, or an invoice is open.
    """
    asked = ctx.query(Scope).organization_id
    organization_id = await authorized(ctx, _KIND, payment_method_id, asked)
    gone = await ctx.database.write(services.delete_method, organization_id, payment_method_id)
    await services.forget(needs, gone)
