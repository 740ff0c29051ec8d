"""The port to a payment processor, which stores the cards and moves the money."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from cloudcore.ports import Port

MethodType = Literal["card", "sepa_debit"]


class StoredMethod(NamedTuple):
    """A payment method as the processor stores it."""

    reference: str
    """The processor's id of the method."""
    type: MethodType
    brand: str | None = None
    """The brand of a card, in lower case: ``visa``."""
    last4: str | None = None
    exp_month: int | None = None
    exp_year: int | None = None
    """The year with four digits."""


class Order(NamedTuple):
    """A payment to make."""

    id: str
    """The id of the charge, which is the processor's idempotency key."""
    customer: str
    """The processor's id of the customer."""
    method: str
    """The processor's id of the payment method."""
    amount: str
    currency: str


class MethodRefused(Exception):
    """The token is unknown, or the processor rejects its card.

    `code` is the processor's, such as ``card_declined``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Declined(Exception):
    """The payment was declined, and no money was moved. The decision on this order is final."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Processor(Protocol):
    """A payment processor. Its calls raise `Unavailable` if their outcome is unknown."""

    @property
    def name(self) -> str:
        """Return the processor's name, which is stored with customers and methods."""

    async def customer(self, organization_id: str) -> str:
        """Create a customer for an organization; return the customer's id.

        A call that is repeated soon returns the same id.
        """

    async def keep(self, customer: str, type_: MethodType, token: str) -> StoredMethod:
        """Store the card or bank account of a token.

        Raise `MethodRefused` if the token is unknown or the processor rejects it.
        """

    async def forget(self, reference: str) -> None:
        """Delete a payment method; do nothing if it is already deleted."""

    async def prepare(self, order: Order) -> str:
        """Prepare a charge, and return the id that the processor gives it; no money moves yet.

        Raise `Declined` if the processor refuses the order.
        """

    async def charge(self, reference: str, order: Order) -> None:
        """Move the money of a prepared charge; repeated calls move it only once.

        Raises:
            Declined: the charge was declined, by this call or an earlier one.

        """


PROCESSOR: Final[Port[Processor]] = Port("billing.processor")
