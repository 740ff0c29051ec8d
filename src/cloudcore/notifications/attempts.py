"""Store the outcome of attempts: delivered, to be retried, or moved to the dead-letter queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import json_text
from cloudcore.errors import InvalidInput, NotFound, QuotaExceeded
from cloudcore.jobs.faults import Fault, add_fault
from cloudcore.metering.usage import report
from cloudcore.notifications import delivery_rows
from cloudcore.notifications.delivery_policy import LONGEST_DELAY_SECONDS, Retries
from cloudcore.notifications.delivery_rows import wake
from cloudcore.notifications.needs import Queues
from cloudcore.notifications.subscriptions import SUBSCRIPTION_ROWS, current, save_faults
from cloudcore.notifications.topic import (
    DELIVERIES,
    PendingDelivery,
    Publication,
    Subscription,
    SubscriptionMissing,
)
from cloudcore.wire import rfc3339

DEAD_LETTER_QUEUE_MISSING: Final = "DEAD_LETTER_QUEUE_MISSING"
DEAD_LETTER_QUEUE_FULL: Final = "DEAD_LETTER_QUEUE_FULL"
"""The dead-letter queue takes no more: the message is kept, and tried again later."""
DEAD_LETTER_REFUSED: Final = "DEAD_LETTER_REFUSED"
MESSAGE_DROPPED: Final = "MESSAGE_DROPPED"
"""The last attempt failed, and there is no dead-letter queue."""
_LASTING: Final = frozenset({MESSAGE_DROPPED, DEAD_LETTER_QUEUE_MISSING, DEAD_LETTER_REFUSED})
_MAX_WORDS: Final = 300
_OF_REQUESTS: Final = Retries()
"""The retry settings of requests to confirm, which no delivery policy changes."""
_FULL_SECONDS: Final = 60
"""The pause before a message is tried again while its dead-letter queue is full."""


class AttemptOutcome(NamedTuple):
    """The outcome of a delivery attempt."""

    result: Literal["delivered", "retry", "failed"]
    code: str = ""
    """A stable word in capitals."""
    message: str = ""
    """Contains no secret."""
    retry_after: int = 0
    """How many seconds the endpoint asks to wait before a retry."""
    http_status: int | None = None


class Attempted(NamedTuple):
    """A delivery attempt, with its envelope and its outcome."""

    delivery: PendingDelivery
    envelope: Mapping[str, Any]
    outcome: AttemptOutcome | None
    """None if not yet tried: a message to a queue is sent in the transaction that stores the
    outcome."""


DELIVERED: Final = AttemptOutcome("delivered")
BACKLOG_FULL: Final = AttemptOutcome(
    "failed", "BACKLOG_FULL", "too many messages wait for the endpoint, so the oldest fail"
)


def record(
    tx: Connection,
    queues: Queues,
    subscription: Subscription,
    retries: Retries,
    attempts: Sequence[Attempted],
    now: int,
    not_before: int,
) -> None:
    """Store the outcomes of attempts, and schedule the next attempts for the subscription.

    They begin at `not_before` at the earliest. Do nothing if the subscription was deleted.
    """
    try:
        found = SUBSCRIPTION_ROWS.lock(tx, subscription.account_id, subscription.id)
    except SubscriptionMissing:
        return  # its deliveries were deleted with it
    recording = _Recording(tx, queues, found, retries, now, list(found.faults))
    for attempted in attempts:
        recording.apply(attempted)
    if recording.faults != list(found.faults):
        save_faults(tx, found.account_id, found.id, recording.faults)
    due_at = delivery_rows.first_due(tx, found.account_id, found.id)
    if due_at is not None:
        wake(tx, found.account_id, found.id, now, max(due_at, not_before))
    if recording.delivered:
        count = recording.delivered
        report(tx, found.account_id, found.region, DELIVERIES.name, count, now)


@dataclass(slots=True)
class _Recording:
    """Stores attempts for one subscription, whose row is locked, and collects its faults."""

    tx: Connection
    queues: Queues
    subscription: Subscription
    retries: Retries
    now: int
    faults: list[Fault]
    delivered: int = 0

    def apply(self, attempted: Attempted) -> None:
        """Store the outcome of an attempt; if there is no outcome yet, first send to the queue."""
        delivery, now = attempted.delivery, self.now
        outcome = attempted.outcome or self._send(attempted)
        if outcome.result == "delivered":
            if delivery.publication is not None:
                self.delivered += 1
            delivery_rows.remove_delivery(self.tx, delivery)
            self.faults = [each for each in current(self.faults, now) if each.code in _LASTING]
            return
        self.faults = current(self.faults, now)
        self._add(outcome.code, outcome.message)
        retries = _OF_REQUESTS if delivery.publication is None else self.retries
        count = delivery.attempts + 1
        if outcome.result == "retry" and count <= retries.max_retries:
            asked = min(outcome.retry_after, LONGEST_DELAY_SECONDS)
            pause = max(retries.delay_seconds(count), asked)
            delivery_rows.postpone(self.tx, delivery, count, now + pause * MICROSECONDS)
            return
        if delivery.publication is not None:
            try:
                self._dead_letter(attempted, outcome, delivery.publication)
            except QuotaExceeded as error:
                self._add(DEAD_LETTER_QUEUE_FULL, error.message)
                if outcome != BACKLOG_FULL:
                    later = now + _FULL_SECONDS * MICROSECONDS
                    delivery_rows.postpone(self.tx, delivery, delivery.attempts, later)
                    return
                self._drop(delivery.publication, "its dead-letter queue is full")
        delivery_rows.remove_delivery(self.tx, delivery)

    def _add(self, code: str, words: str) -> None:
        self.faults = add_fault(self.faults, code, words, self.now)

    def _drop(self, message: Publication, why: str) -> None:
        self._add(MESSAGE_DROPPED, f"message {message.id} is lost: {why}")

    def _dead_letter(
        self, attempted: Attempted, outcome: AttemptOutcome, message: Publication
    ) -> None:
        """Send the envelope to the dead-letter queue; raise `QuotaExceeded` if the queue is full.

        If there is no such queue, or the queue refuses the envelope, add a fault.
        """
        subscription, delivery = self.subscription, attempted.delivery
        if subscription.dead_letter_queue is None:
            self._drop(message, "there is no queue for it")
            return
        attributes = {
            "error_code": outcome.code,
            "error_message": outcome.message[:_MAX_WORDS],
            "attempts": str(delivery.attempts + 1),
            "protocol": subscription.protocol,
            "endpoint": subscription.endpoint,
            "subscription_id": subscription.id,
            "first_attempt_at": rfc3339(delivery.created_at),
            "last_attempt_at": rfc3339(self.now),
        }
        if outcome.http_status is not None:
            attributes["http_status"] = str(outcome.http_status)
        try:
            self._send_to(subscription.dead_letter_queue, attempted.envelope, attributes)
        except (NotFound, InvalidInput) as error:
            is_missing = isinstance(error, NotFound)
            code = DEAD_LETTER_QUEUE_MISSING if is_missing else DEAD_LETTER_REFUSED
            self._add(code, f"message {message.id} is lost: {error.message}")
        else:
            self.faults = [each for each in self.faults if each.code != DEAD_LETTER_QUEUE_MISSING]

    def _send(self, attempted: Attempted) -> AttemptOutcome:
        """Send an envelope to the queue that is the subscription's endpoint; return the outcome."""
        envelope = attempted.envelope
        try:
            self._send_to(self.subscription.endpoint, envelope, envelope["attributes"])
        except QuotaExceeded as error:
            return AttemptOutcome("retry", "QUEUE_FULL", error.message)
        except InvalidInput as error:
            return AttemptOutcome("failed", "QUEUE_REFUSED", error.message)
        except NotFound as error:
            return AttemptOutcome("failed", "QUEUE_MISSING", error.message)
        return DELIVERED

    def _send_to(
        self, reference: str, envelope: Mapping[str, Any], attributes: Mapping[str, str]
    ) -> None:
        account_id = self.subscription.account_id
        queue = self.queues.resolve(self.tx, account_id, reference, None)
        self.queues.send(self.tx, account_id, queue.id, json_text(envelope), attributes)
