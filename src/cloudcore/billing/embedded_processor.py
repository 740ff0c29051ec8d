"""The embedded processor: accepts test cards by their tokens, and stores charges in a table.

It moves no money. An operator uses it to try billing, or to see the costs of teams.
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

import sqlalchemy as sa

from cloudcore.billing.processor import Declined, MethodRefused, MethodType, Order, StoredMethod
from cloudcore.billing.tables import embedded_charges
from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import given, insert_new
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable


class _Card(NamedTuple):
    type: MethodType = "card"
    brand: str | None = None
    last4: str | None = None
    decline: str = ""
    """Why charges of the card are declined; empty if they are accepted."""
    is_away: bool = False
    """True if the processor never answers for this card."""


_EXP_MONTH, _EXP_YEAR = 12, 2040
CARDS: Final = {
    "tok_visa": _Card(brand="visa", last4="4242"),
    "tok_visa_debit": _Card(brand="visa", last4="5556"),
    "tok_mastercard": _Card(brand="mastercard", last4="4444"),
    "tok_amex": _Card(brand="amex", last4="8431"),
    "tok_discover": _Card(brand="discover", last4="1117"),
    "tok_sepaDebit": _Card(type="sepa_debit"),
    "tok_chargeDeclined": _Card(brand="visa", last4="0002", decline="card_declined"),
    "tok_chargeDeclinedInsufficientFunds": _Card(
        brand="visa", last4="9995", decline="insufficient_funds"
    ),
    "tok_chargeDeclinedExpiredCard": _Card(brand="visa", last4="0069", decline="expired_card"),
    "tok_chargeUnavailable": _Card(brand="visa", last4="0119", is_away=True),
}
"""The card of each token."""
_WORDS: Final = {
    "card_declined": "the card was declined",
    "insufficient_funds": "the card has insufficient funds",
    "expired_card": "the card has expired",
}

_c = embedded_charges.c
_ADD: Final = Statement(insert_new(embedded_charges, [column.name for column in _c]))
_FIND: Final = Statement(sa.select(_c.decline).where(given(_c.id)))


class EmbeddedProcessor:
    """Accepts or declines charges, depending on the card's token."""

    name: ClassVar[str] = "embedded"

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def customer(self, organization_id: str) -> str:
        """Return the organization's id, which is also its customer id."""
        return organization_id

    async def keep(self, customer: str, type_: MethodType, token: str) -> StoredMethod:
        """Return the test card with this token; raise `MethodRefused` if there is no such card."""
        del customer
        card = CARDS.get(token)
        if card is None or card.type != type_:
            raise MethodRefused("unknown_token", f"there is no such token of a {type_}")
        if card.type != "card":
            return StoredMethod(token, card.type)
        return StoredMethod(token, card.type, card.brand, card.last4, _EXP_MONTH, _EXP_YEAR)

    async def forget(self, reference: str) -> None:
        """Do nothing: no cards are stored."""

    async def prepare(self, order: Order) -> str:
        """Return an id for the charge, made from the order's id."""
        return f"ch_{order.id}"

    async def charge(self, reference: str, order: Order) -> None:
        """Store an order once; raise `Declined` or `Unavailable` if the test card asks for it."""
        del reference
        card = CARDS[order.method]
        if card.is_away:
            raise Unavailable("the payment processor does not answer")
        decline = await self._database.write(self._charge, order, card.decline)
        if decline:
            raise Declined(decline, _WORDS[decline])

    def _charge(self, tx: Connection, order: Order, decline: str) -> str:
        """Store an order once; return why it was declined, or an empty string."""
        tx.execute(
            _ADD,
            id=order.id,
            amount=order.amount,
            currency=order.currency,
            decline=decline,
            charged_at=self._clock(),
        )
        row = tx.row(_FIND, id=order.id)
        assert row is not None
        return str(row[0])
