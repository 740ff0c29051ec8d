"""What attempts came to, and what follows: an end, a retry, or the dead-letter queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound, QuotaExceeded
from cloudcore.jobs.faults import Fault, add_fault
from cloudcore.notifications import delivery_rows
from cloudcore.notifications.delivery_policy import LONGEST_DELAY_SECONDS, Retries
from cloudcore.notifications.ports import Queues
from cloudcore.notifications.records import Delivery, Publication, encoded
from cloudcore.notifications.rules import SubscriptionMissing
from cloudcore.notifications.subscription import Subscription
from cloudcore.notifications.subscription_rows import save_faults
from cloudcore.notifications.tables import SUBSCRIPTION_ROWS
from cloudcore.notifications.waking import wake
from cloudcore.wire import rfc3339

DEAD_LETTER_QUEUE_MISSING: Final = "DEAD_LETTER_QUEUE_MISSING"
DEAD_LETTER_QUEUE_FULL: Final = "DEAD_LETTER_QUEUE_FULL"
"""The message is kept, and tried again."""
DEAD_LETTER_REFUSED: Final = "DEAD_LETTER_REFUSED"
MESSAGE_DROPPED: Final = "MESSAGE_DROPPED"
"""The last attempt has failed, and there is no dead-letter queue."""
FAULT_SECONDS: Final = 7 * 24 * 3600
"""Seconds after which a fault that nothing clears is no longer shown."""
_LASTING: Final = frozenset({MESSAGE_DROPPED, DEAD_LETTER_QUEUE_MISSING, DEAD_LETTER_REFUSED})
_MAX_WORDS: Final = 300
_OF_REQUESTS: Final = Retries()
"""Nobody who is asked to confirm is asked as often as a policy says."""
_FULL_SECONDS: Final = 60
"""After these a message is tried again whose dead-letter queue is full."""


class Outcome(NamedTuple):
    """What an attempt came to."""

    result: Literal["delivered", "retry", "failed"]
    code: str = ""
    """A stable word in capitals."""
    message: str = ""
    """Contains no secret."""
    retry_after: int = 0
    """Seconds for which the endpoint asks to be left alone."""
    http_status: int | None = None


class Attempted(NamedTuple):
    """An attempt, with what was sent."""

    delivery: Delivery
    envelope: Mapping[str, Any]
    outcome: Outcome | None
    """None until it is tried; a queue is sent to in the transaction that records the attempt."""


DELIVERED: Final = Outcome("delivered")
BACKLOG_FULL: Final = Outcome(
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
    """Apply what attempts came to, and let the next deliveries be looked at when they are due.

    They are looked at at `not_before` at the earliest.
    """
    try:
        found = SUBSCRIPTION_ROWS.lock(tx, subscription.account_id, subscription.id)
    except SubscriptionMissing:
        return  # its deliveries are gone with it
    faults = list(found.faults)
    for attempted in attempts:
        outcome = attempted.outcome or _send(tx, queues, found, attempted)
        faults = _apply(tx, queues, found, retries, attempted, outcome, faults, now)
    if faults != list(found.faults):
        save_faults(tx, found.account_id, found.id, faults)
    due_at = delivery_rows.first_due(tx, found.account_id, found.id)
    if due_at is not None:
        wake(tx, found.account_id, found.id, now, max(due_at, not_before))


def current(faults: Sequence[Fault], now: int) -> list[Fault]:
    """Return the faults that are shown."""
    return [each for each in faults if each.last_at > now - FAULT_SECONDS * MICROSECONDS]


def _apply(
    tx: Connection,
    queues: Queues,
    subscription: Subscription,
    retries: Retries,
    attempted: Attempted,
    outcome: Outcome,
    faults: list[Fault],
    now: int,
) -> list[Fault]:
    """Apply one outcome; return the subscription's faults after it."""
    delivery = attempted.delivery
    if outcome.result == "delivered":
        delivery_rows.remove_delivery(tx, delivery)
        return [each for each in current(faults, now) if each.code in _LASTING]
    faults = add_fault(current(faults, now), outcome.code, outcome.message, now)
    if delivery.publication is None:
        retries = _OF_REQUESTS
    count = delivery.attempts + 1
    if outcome.result == "retry" and count <= retries.max_retries:
        pause = max(retries.delay_seconds(count), min(outcome.retry_after, LONGEST_DELAY_SECONDS))
        delivery_rows.postpone(tx, delivery, count, now + pause * MICROSECONDS)
        return faults
    if delivery.publication is not None and subscription.dead_letter_queue is not None:
        try:
            faults = _bury(tx, queues, subscription, attempted, outcome, faults, now)
        except QuotaExceeded as error:
            faults = add_fault(faults, DEAD_LETTER_QUEUE_FULL, error.message, now)
            if outcome != BACKLOG_FULL:
                later = now + _FULL_SECONDS * MICROSECONDS
                delivery_rows.postpone(tx, delivery, delivery.attempts, later)
                return faults
            faults = _dropped(faults, delivery.publication, "its dead-letter queue is full", now)
    elif delivery.publication is not None:
        faults = _dropped(faults, delivery.publication, "there is no queue for it", now)
    delivery_rows.remove_delivery(tx, delivery)
    return faults


def _dropped(faults: list[Fault], message: Publication, why: str, now: int) -> list[Fault]:
    return add_fault(faults, MESSAGE_DROPPED, f"message {message.id} is lost: {why}", now)


def _bury(
    tx: Connection,
    queues: Queues,
    subscription: Subscription,
    attempted: Attempted,
    outcome: Outcome,
    faults: list[Fault],
    now: int,
) -> list[Fault]:
    """Send the envelope to the dead-letter queue; a queue that is gone is a fault."""
    assert subscription.dead_letter_queue is not None
    delivery = attempted.delivery
    attributes = {
        "error_code": outcome.code,
        "error_message": outcome.message[:_MAX_WORDS],
        "attempts": str(delivery.attempts + 1),
        "protocol": subscription.protocol,
        "endpoint": subscription.endpoint,
        "subscription_id": subscription.id,
        "first_attempt_at": rfc3339(delivery.created_at),
        "last_attempt_at": rfc3339(now),
    }
    if outcome.http_status is not None:
        attributes["http_status"] = str(outcome.http_status)
    try:
        account_id, body = subscription.account_id, encoded(attempted.envelope)
        queue = queues.resolve(tx, account_id, subscription.dead_letter_queue, None)
        queues.send(tx, account_id, queue.id, body, attributes)
    except (NotFound, InvalidInput) as error:
        words = f"message {attempted.envelope['message_id']} is lost: {error.message}"
        is_missing = isinstance(error, NotFound)
        code = DEAD_LETTER_QUEUE_MISSING if is_missing else DEAD_LETTER_REFUSED
        return add_fault(faults, code, words, now)
    return [each for each in faults if each.code != DEAD_LETTER_QUEUE_MISSING]


def _send(
    tx: Connection, queues: Queues, subscription: Subscription, attempted: Attempted
) -> Outcome:
    """Send an envelope to a queue, which is an endpoint."""
    account_id, envelope = subscription.account_id, attempted.envelope
    try:
        queue = queues.resolve(tx, account_id, subscription.endpoint, None)
        queues.send(tx, account_id, queue.id, encoded(envelope), envelope["attributes"])
    except QuotaExceeded as error:
        return Outcome("retry", "QUEUE_FULL", error.message)
    except InvalidInput as error:
        return Outcome("failed", "QUEUE_REFUSED", error.message)
    except NotFound as error:
        return Outcome("failed", "QUEUE_MISSING", error.message)
    return DELIVERED
