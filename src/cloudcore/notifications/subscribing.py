"""Create, confirm, change and delete subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import structs

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from cloudcore.keyring import Keyring
from cloudcore.notifications import delivery_rows, subscriptions
from cloudcore.notifications.delivery_rows import wake
from cloudcore.notifications.publishing import release_waiting
from cloudcore.notifications.subscriptions import SUBSCRIPTION_ROWS as ROWS
from cloudcore.notifications.topic import (
    SUBSCRIPTIONS,
    TOPIC,
    Subscription,
    SubscriptionMissing,
    Topic,
)
from cloudcore.notifications.topics import ROWS as TOPICS
from cloudcore.quotas.limits import check_limit
from cloudcore.resources.confirmations import (
    CONFIRMED,
    BadToken,
    count_confirmation,
    token_hash,
    unconfirmed,
)

COSIGN_SECONDS: Final = 24 * 3600
"""How long a rotated secret still signs, beside the new one."""


Finish = Callable[[Connection, Subscription], Subscription]
"""Checks and completes a new subscription; an error that it raises prevents the creation."""


def pending(subscription: Subscription, keyring: Keyring, now: int) -> Subscription:
    """Return a subscription that waits to be confirmed by a new token."""
    fields = unconfirmed(keyring, TOPIC.service, subscription.id, now)
    return structs.replace(subscription, status="pending_confirmation", active_since=None, **fields)


def find_or_create(
    tx: Connection, topic: Topic, wanted: Subscription, finish: Finish, now: int
) -> Subscription:
    """Return the subscription of an endpoint to a topic; create it if there is none.

    A new subscription is completed by `finish`; unless it is already active, its endpoint is asked
    to confirm it.

    Raises:
        TopicMissing: the topic was deleted.
        QuotaExceeded: the topic has the maximum number of subscriptions.
        TooManyConfirmations: this endpoint, or all endpoints of the account together, got too many
            requests.

    """
    TOPICS.lock(tx, topic.account_id, topic.id)
    there = subscriptions.find_same(
        tx, topic.account_id, topic.id, wanted.protocol, wanted.endpoint
    )
    if there is not None:
        return there
    used = subscriptions.count_subscriptions(tx, topic.account_id, topic.id)
    words = "a topic has at most {limit} subscriptions"
    check_limit(tx, topic.account_id, SUBSCRIPTIONS, used, words)
    made = ROWS.add(tx, finish(tx, wanted))
    if made.active_since is None:
        _ask(tx, made, now)
    else:
        release_waiting(tx, topic, now)
    return made


def get_subscription(
    tx: Connection, account_id: str, topic_id: str, subscription_id: str
) -> Subscription:
    """Return a subscription to a topic, or raise `SubscriptionMissing`."""
    found = ROWS.find(tx, account_id, subscription_id)
    if found is None or found.topic_id != topic_id:
        raise SubscriptionMissing
    return found


def delete_subscription(tx: Connection, subscription: Subscription) -> None:
    """Delete a subscription with its deliveries; raise `SubscriptionMissing` if it is gone."""
    if not subscriptions.remove_subscription(tx, subscription.account_id, subscription.id):
        raise SubscriptionMissing


def rotate_secret(
    tx: Connection, subscription: Subscription, sealed: bytes, now: int
) -> Subscription:
    """Set a new signing secret; the previous one also signs for `COSIGN_SECONDS`.

    Raise `NotFound` for a subscription without a secret, `SubscriptionMissing` if it is gone.
    """
    found = ROWS.lock(tx, subscription.account_id, subscription.id)
    check_has_secret(found)
    changed = structs.replace(
        found,
        signing_secret=sealed,
        previous_secret=found.signing_secret,
        previous_until=now + COSIGN_SECONDS * MICROSECONDS,
        updated_at=now,
    )
    return ROWS.save(tx, changed)


def check_has_secret(subscription: Subscription) -> None:
    """Raise `NotFound` if a subscription has no signing secret, which only webhooks have."""
    if subscription.signing_secret is None:
        raise NotFound("only webhooks (http, https) have a signing secret")


def resend_confirmation(
    tx: Connection, subscription: Subscription, keyring: Keyring, now: int
) -> Subscription:
    """Ask the endpoint again to confirm, with a new token; return the subscription.

    Raise `Conflict` if the subscription is already confirmed; `TooManyConfirmations` if this
    endpoint, or all endpoints of the account together, got too many requests.
    """
    # First, as a step locks its job before the subscription.
    wake(tx, subscription.account_id, subscription.id, now)
    found = ROWS.lock(tx, subscription.account_id, subscription.id)
    if found.status == "confirmed":
        raise Conflict("the subscription is confirmed", status=found.status)
    changed = structs.replace(pending(found, keyring, now), updated_at=now)
    ROWS.save(tx, changed)
    _ask(tx, changed, now)
    return changed


def confirm(tx: Connection, token: str, now: int) -> tuple[Subscription, Topic]:
    """Confirm the subscription that waits for this token; return (subscription, topic).

    Raise `BadToken` if no subscription waits for the token, or the token has expired.
    """
    found = subscriptions.lock_confirmed_by(tx, token_hash(token))
    if found is None or (found.confirmation_expires_at or 0) <= now:
        raise BadToken("subscription")
    confirmed = structs.replace(
        found,
        status="confirmed",
        active_since=now,
        faults=(),
        updated_at=now,
        **CONFIRMED,
    )
    ROWS.save(tx, confirmed)
    delivery_rows.remove_requests(tx, confirmed.account_id, confirmed.id)
    topic = TOPICS.find(tx, confirmed.account_id, confirmed.topic_id)
    assert topic is not None, "a subscription has a topic"
    release_waiting(tx, topic, now)
    return confirmed, topic


def unsubscribe(
    tx: Connection, account_id: str, subscription_id: str
) -> tuple[Subscription, Topic] | None:
    """Delete a subscription at its recipient's request; return (subscription, topic).

    Return None if there is no such subscription.
    """
    found = subscriptions.find_with_topic(tx, account_id, subscription_id)
    if found is None or not subscriptions.remove_subscription(tx, account_id, subscription_id):
        return None
    return found


def _ask(tx: Connection, subscription: Subscription, now: int) -> None:
    """Count a request to confirm, and insert its delivery in place of earlier requests."""
    account_id, endpoint = subscription.account_id, subscription.endpoint
    count_confirmation(tx, TOPIC.service, "endpoint", endpoint, account_id, now)
    ids = (account_id, subscription.id)
    wake(tx, *ids, now)
    delivery_rows.remove_requests(tx, *ids)
    delivery_rows.add_delivery(tx, *ids, None, now)
