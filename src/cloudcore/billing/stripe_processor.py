"""Stripe as the payment processor, through Stripe's Python client, an optional dependency.

A charge is a PaymentIntent, which is created unconfirmed, and confirmed after its id is stored.
After a crash in between, the process reads the intent's status. Stripe confirms an intent only
once, even long after its idempotency keys have expired (Stripe keeps them for at least 24 hours).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from importlib.util import find_spec
from threading import Lock
from typing import Any, Final, TypeVar

from cloudcore.billing.money import in_smallest
from cloudcore.billing.processor import Declined, MethodRefused, MethodType, Order, StoredMethod
from cloudcore.errors import Unavailable

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 20
_THREADS: Final = 8
"""Concurrent calls, each of which waits for Stripe's response."""

_IN_HUNDREDTHS: Final = ("ISK", "UGX")
"""Currencies without a smaller unit that Stripe nevertheless counts in hundredths."""

_log = logging.getLogger(__name__)


class StripeMissing(Exception):
    """The package stripe is not installed."""

    def __init__(self) -> None:
        super().__init__("Stripe needs the package stripe: pip install 'entrepot[stripe]'")


class StripeProcessor:
    """Stores and charges payment methods at Stripe."""

    name: Final = "stripe"

    def __init__(self, key: str, endpoint: str = "") -> None:
        """Store the secret key; `endpoint` is a URL to use instead of Stripe's own.

        Raise `StripeMissing` if Stripe's client is not installed.
        """
        if find_spec("stripe") is None:
            raise StripeMissing
        self._key = key
        self._endpoint = endpoint
        self._making = Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "stripe")

    def close(self) -> None:
        """End the threads; do not wait for calls that are running."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def customer(self, organization_id: str) -> str:
        """Return the id of an organization's customer; create the customer if needed."""
        given = {"metadata": {"organization": organization_id}}
        options = {"idempotency_key": f"customer:{organization_id}"}
        made = await self._asked(lambda: self._client.v1.customers.create(given, options))
        return str(made.id)

    async def keep(self, customer: str, type_: MethodType, token: str) -> StoredMethod:
        """Attach the method of a token (``pm_…`` or ``tok_…``) to a customer.

        Raise `MethodRefused` if Stripe refuses the method, or the method is of another type.
        """
        try:
            return await self._asked(partial(self._attach, customer, type_, token))
        except Declined as refused:
            raise MethodRefused(refused.code, refused.message) from None

    async def forget(self, reference: str) -> None:
        """Detach a payment method from its customer; do nothing if it is already detached."""
        with suppress(Declined):  # it is attached to nobody
            await self._asked(lambda: self._client.v1.payment_methods.detach(reference))

    async def prepare(self, order: Order) -> str:
        """Create an unconfirmed PaymentIntent, and return its id."""
        given = {
            "amount": _amount(order),
            "currency": order.currency.lower(),
            "customer": order.customer,
            "payment_method": order.method,
            "payment_method_types": ["card", "sepa_debit"],
            "metadata": {"charge": order.id},
        }
        options = {"idempotency_key": f"{order.id}:intent"}
        made = await self._asked(lambda: self._client.v1.payment_intents.create(given, options))
        return str(made.id)

    async def charge(self, reference: str, order: Order) -> None:
        """Confirm a PaymentIntent, unless it is already confirmed.

        Raise `Declined`, or `Unavailable` while the payment is being processed.
        """
        intent = await self._asked(lambda: self._client.v1.payment_intents.retrieve(reference))
        if intent.status == "requires_confirmation":
            given, options = {"off_session": True}, {"idempotency_key": f"{order.id}:confirm"}
            intent = await self._asked(
                lambda: self._client.v1.payment_intents.confirm(reference, given, options)
            )
        if intent.status == "succeeded":
            return
        if intent.status == "processing":  # debits take days
            raise Unavailable("the payment is being processed", retry_after=3600)
        error = intent.last_payment_error
        if error is not None:
            raise Declined(str(error.code or "declined"), str(error.message or "declined"))
        raise Declined(intent.status, "the payment needs its owner, who is not here")

    # In a thread

    def _attach(self, customer: str, type_: MethodType, token: str) -> StoredMethod:
        methods = self._client.v1.payment_methods
        if token.startswith("tok_"):
            token = methods.create({"type": "card", "card": {"token": token}}).id
        made = methods.attach(token, {"customer": customer})
        if made.type != type_:
            methods.detach(made.id)
            raise Declined("type_mismatch", f"the token is that of a {made.type}")
        if made.type != "card":
            return StoredMethod(made.id, type_)
        card = made.card
        return StoredMethod(made.id, type_, card.brand, card.last4, card.exp_month, card.exp_year)

    @property
    def _client(self) -> Any:  # noqa: ANN401 - stripe makes the class
        with self._making:
            return self._made

    @cached_property
    def _made(self) -> Any:  # noqa: ANN401 - stripe makes the class
        import stripe  # noqa: PLC0415 - optional, and takes long

        return stripe.StripeClient(
            self._key,
            base_addresses={"api": self._endpoint} if self._endpoint else {},
            http_client=stripe.RequestsClient(timeout=TIMEOUT_SECONDS),
            max_network_retries=1,
        )

    async def _asked(self, ask: Callable[[], T]) -> T:
        """Call Stripe in a thread, and return the result.

        Raise `Declined` if Stripe permanently refuses the card or the request; `Unavailable` if
        Stripe does not answer, or rejects our key, so that the outcome is unknown.
        """
        import stripe  # noqa: PLC0415 - optional, and takes long

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except (stripe.CardError, stripe.InvalidRequestError) as error:
            raise Declined(error.code or "refused", error.user_message or "refused") from None
        except stripe.StripeError as error:
            # Only the class: the text may contain a part of the key.
            _log.error("Stripe failed or refused a request: %s", type(error).__name__)
        raise Unavailable("the payment processor does not answer, or refuses; ask the operator")


def _amount(order: Order) -> int:
    """Return the amount of an order in the unit that Stripe expects."""
    amount = in_smallest(order.amount, order.currency)
    return amount * 100 if order.currency in _IN_HUNDREDTHS else amount
