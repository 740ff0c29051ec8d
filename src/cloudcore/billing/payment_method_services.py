"""Rules of payment methods: an organization has at most 20, and one of them is its default."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from cloudcore.account_rows import lock_organization
from cloudcore.billing import payment_method_rows as rows
from cloudcore.billing.description import PAYMENT_METHODS
from cloudcore.billing.needs import BillingNeeds
from cloudcore.billing.payment_method_rows import PaymentMethod
from cloudcore.billing.processor import MethodRefused, MethodType, StoredMethod
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, Unavailable
from cloudcore.quotas.limits import EVERY_ACCOUNT, check_limit

_BRANDS: Final = {"amex": "American Express", "diners": "Diners Club", "jcb": "JCB"}


async def customer_of(needs: BillingNeeds, organization_id: str) -> str:
    """Return the organization's customer id at the processor; create a customer if it has none."""
    name = needs.processor.name
    known = await needs.database.read(rows.find_customer, organization_id, name)
    if known is not None:
        return known
    made = await needs.processor.customer(organization_id)
    return await needs.database.write(rows.add_customer, organization_id, name, made)


async def keep(
    needs: BillingNeeds, organization_id: str, type_: MethodType, token: str
) -> StoredMethod:
    """Store a card or bank account at the processor, from its token; return the stored method.

    Raise `InvalidInput` if the processor rejects the token.
    """
    customer = await customer_of(needs, organization_id)
    try:
        return await needs.processor.keep(customer, type_, token)
    except MethodRefused as refused:
        raise InvalidInput(
            f"token: {refused.message}", field="token", reason="refused", code=refused.code
        ) from None


def name_of(kept: StoredMethod | PaymentMethod) -> str:
    """Return the default name of a payment method, such as ``Visa ending in 4242``."""
    if kept.type != "card":
        return "SEPA direct debit"
    brand = kept.brand or "card"
    return f"{_BRANDS.get(brand, brand.capitalize())} ending in {kept.last4}"


def check_room(tx: Connection, organization_id: str) -> int:
    """Return how many payment methods an organization has.

    Raise `QuotaExceeded` if it has reached its quota.
    """
    used = rows.count_methods(tx, organization_id)
    words = "an organization has at most {limit} payment methods; delete one"
    check_limit(tx, EVERY_ACCOUNT, PAYMENT_METHODS, used, words)
    return used


def add_method(tx: Connection, new: PaymentMethod) -> PaymentMethod:
    """Insert a payment method; the first one of an organization is its default.

    Return it as stored. Raise `QuotaExceeded` if the organization has reached its quota.
    """
    lock_organization(tx, new.organization_id)
    used = check_room(tx, new.organization_id)
    new = new._replace(is_default=new.is_default or used == 0)
    if new.is_default:
        rows.unset_default(tx, new.organization_id, new.created_at)
    rows.insert_method(tx, new)
    return new


def update_method(
    tx: Connection, organization_id: str, method_id: str, changes: dict[str, Any], now: int
) -> PaymentMethod:
    """Change the name of a payment method, or make it the default; return the payment method.

    Raise `NotFound` if there is no such method, `InvalidInput` if the default is to be unset.
    """
    lock_organization(tx, organization_id)
    found = rows.get_method(tx, organization_id, method_id)
    if not changes.get("is_default", True):
        if found.is_default:
            raise InvalidInput(
                "is_default: one payment method is the default; make another one that",
                field="is_default",
                reason="not_allowed",
            )
        changes = {name: value for name, value in changes.items() if name != "is_default"}
    if changes.get("display_name", "") is None:
        changes = {**changes, "display_name": name_of(found)}
    changed = found._replace(**changes)
    if changed == found:
        return found
    if changed.is_default and not found.is_default:
        rows.unset_default(tx, organization_id, now)
    changed = changed._replace(updated_at=now)
    rows.save_method(tx, changed)
    return changed


def delete_method(tx: Connection, organization_id: str, method_id: str) -> PaymentMethod:
    """Delete a payment method, and return it.

    Raise `NotFound` if there is no such method; `Conflict` if it is the default while others exist
    or an invoice is open, or if a payment with it is under way.
    """
    lock_organization(tx, organization_id)
    found = rows.get_method(tx, organization_id, method_id)
    if rows.is_being_charged(tx, found.id):
        raise Conflict("a payment by it is under way", reason="in_use")
    if found.is_default and rows.count_methods(tx, organization_id) > 1:
        raise Conflict(
            "it is the default payment method; make another one that first", reason="is_default"
        )
    if found.is_default and rows.owes(tx, organization_id):
        raise Conflict(
            "it is the default payment method, and an invoice is open; pay that first",
            reason="is_default",
        )
    rows.remove_method(tx, found)
    return found


async def forget(needs: BillingNeeds, gone: PaymentMethod) -> None:
    """Delete a payment method at the processor, after it was deleted here.

    If that fails, the processor still stores the method, but nothing here can charge it any more.
    """
    if gone.processor == needs.processor.name:
        with suppress(Unavailable):
            await needs.processor.forget(gone.reference)
