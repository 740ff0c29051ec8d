"""The port to a payment processor, which stores the cards and moves the money."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from cloudcore.ports import Port

MethodType = Literal["card", "sepa_debit"]


class StoredMethod(NamedTuple):
    """A payment method as a processor stores it."""

    reference: str
    """What the processor calls it."""
    type: MethodType
    brand: str | None = None
    """Of a card, in small letters: ``visa``."""
    last4: str | None = None
    exp_month: int | None = None
    exp_year: int | None = None
    """Of four digits."""


class Order(NamedTuple):
    """A payment to make."""

    id: str
    """Of our operation; the processor's idempotency key."""
    customer: str
    """What the processor calls who pays."""
    method: str
    """What the processor calls that by which it is paid."""
    amount: str
    currency: str


class MethodRefused(Exception):
    """A token is unknown, or the processor rejects its card.

    `code` is the processor's, such as ``card_declined``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Declined(Exception):
    """A payment was declined, and no money was moved. It is final for this order."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Processor(Protocol):
    """A payment processor. Its calls raise `Unavailable` if their outcome is unknown."""

    @property
    def name(self) -> str:
        """Return its name, as stored."""

    async def customer(self, organization_id: str) -> str:
        """Return an organization's customer id; the same if called again soon."""

    async def keep(self, customer: str, type_: MethodType, token: str) -> StoredMethod:
        """Store the card of a token; raise `MethodRefused`."""

    async def forget(self, reference: str) -> None:
        """Delete a payment method; do nothing if that is done."""

    async def prepare(self, order: Order) -> str:
        """Return the id of the charge of an order, which moves no money yet.

        Raise `Declined` if it accepts no such order.
        """

    async def charge(self, reference: str, order: Order) -> None:
        """Move the money of a prepared charge; further calls for it move none.

        Raises:
            Declined: the charge was declined, by this call or an earlier one.

        """


PROCESSOR: Final[Port[Processor]] = Port("billing.processor")
