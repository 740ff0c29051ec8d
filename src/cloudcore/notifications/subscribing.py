"""Subscriptions to topics: changes with their rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound, QuotaExceeded
from cloudcore.notifications import delivery_rows, subscription_rows
from cloudcore.notifications.fan_out import release_waiting
from cloudcore.notifications.records import Subscription
from cloudcore.notifications.request_limits import count_ask
from cloudcore.notifications.rules import SubscriptionMissing, check_raw
from cloudcore.notifications.signing import token_hash
from cloudcore.notifications.topic import Topic
from cloudcore.notifications.topics import ROWS as TOPICS
from cloudcore.notifications.waking import wake

MAX_SUBSCRIPTIONS: Final = 1000
"""Maximum number of subscriptions to a topic."""
CONFIRMATION_SECONDS: Final = 72 * 3600
"""Seconds for which a request to confirm is valid."""
COSIGN_SECONDS: Final = 24 * 3600
"""Seconds for which a rotated secret still signs, beside the new one."""


Finish = Callable[[Connection, Subscription], Subscription]
"""Checks and completes a subscription that is new; what it raises refuses it."""


class BadToken(InvalidInput):
    """The token confirms nothing: unknown, expired or superseded, which is not told."""

    def __init__(self) -> None:
        super().__init__(
            "the token confirms no subscription: it is unknown, expired, used, or there is a newer"
            " one",
            field="token",
            reason="unknown",
        )


def pending(subscription: Subscription, nonce: str, token: str, now: int) -> Subscription:
    """Return a subscription that waits for its confirmation by a token."""
    return subscription._replace(
        status="pending_confirmation",
        confirmation_nonce=nonce,
        confirmation_hash=token_hash(token),
        confirmation_until=now + CONFIRMATION_SECONDS * MICROSECONDS,
        active_since=None,
    )


def find_or_create(
    tx: Connection, topic: Topic, wanted: Subscription, finish: Finish, now: int
) -> tuple[Subscription, bool]:
    """Return the subscription of a topic to an endpoint, and True if it is new.

    A new one is finished by `finish`, and its endpoint is asked to confirm it.

    Raises:
        TopicMissing: the topic was deleted.
        QuotaExceeded: the topic has `MAX_SUBSCRIPTIONS`.
        TooManyConfirmations: the endpoint, or the account's, were asked to confirm too often.

    """
    TOPICS.lock(tx, topic.account_id, topic.id)
    there = subscription_rows.find_same(
        tx, topic.account_id, topic.id, wanted.protocol, wanted.endpoint
    )
    if there is not None:
        return there, False
    used = subscription_rows.count_subscriptions(tx, topic.account_id, topic.id)
    if used >= MAX_SUBSCRIPTIONS:
        raise QuotaExceeded(
            f"a topic has at most {MAX_SUBSCRIPTIONS} subscriptions",
            quota="subscriptions",
            limit=MAX_SUBSCRIPTIONS,
            used=used,
        )
    made = finish(tx, wanted)
    is_added = subscription_rows.add_subscription(tx, made)
    assert is_added, "the topic is locked, and it had none to this endpoint"
    if made.active_since is None:
        _ask(tx, made, now)
    else:
        release_waiting(tx, topic, now)
    return made, True


def get_subscription(
    tx: Connection, account_id: str, topic_id: str, subscription_id: str
) -> Subscription:
    """Return a subscription to a topic, or raise `SubscriptionMissing`."""
    found = subscription_rows.find_subscription(tx, account_id, topic_id, subscription_id)
    if found is None:
        raise SubscriptionMissing
    return found


def update_subscription(
    tx: Connection, subscription: Subscription, changes: Mapping[str, Any], now: int
) -> Subscription:
    """Change the settings of a subscription."""
    found = _locked(tx, subscription)
    if not changes:
        return found
    changed = found._replace(**changes, updated_at=now)
    check_raw(changed.protocol, is_raw=changed.raw_message_delivery)
    subscription_rows.save_subscription(tx, changed)
    return changed


def delete_subscription(tx: Connection, subscription: Subscription) -> None:
    """Delete a subscription; nothing more is delivered to its endpoint."""
    ids = (subscription.account_id, subscription.topic_id, subscription.id)
    if not subscription_rows.remove_subscription(tx, *ids):
        raise SubscriptionMissing


def rotate_secret(
    tx: Connection, subscription: Subscription, sealed: bytes, now: int
) -> Subscription:
    """Give a webhook a new signing secret; the one before signs too for `COSIGN_SECONDS`."""
    found = _locked(tx, subscription)
    check_has_secret(found)
    changed = found._replace(
        signing_secret=sealed,
        previous_secret=found.signing_secret,
        previous_until=now + COSIGN_SECONDS * MICROSECONDS,
        updated_at=now,
    )
    subscription_rows.save_subscription(tx, changed)
    return changed


def check_has_secret(subscription: Subscription) -> None:
    """Refuse a subscription without a signing secret: only webhooks have one."""
    if subscription.signing_secret is None:
        raise NotFound("only webhooks (http, https) have a signing secret")


def resend_confirmation(
    tx: Connection, subscription: Subscription, nonce: str, token: str, now: int
) -> Subscription:
    """Ask the endpoint again to confirm; tokens of before no longer do.

    Raises:
        Conflict: the subscription is confirmed.
        TooManyConfirmations: the endpoint, or the account's, were asked to confirm too often.

    """
    # First: a step too locks its job, and then the subscription.
    wake(tx, subscription.account_id, subscription.id, now)
    found = _locked(tx, subscription)
    if found.status == "confirmed":
        raise Conflict("the subscription is confirmed", status=found.status)
    changed = pending(found, nonce, token, now)._replace(updated_at=now)
    subscription_rows.save_subscription(tx, changed)
    _ask(tx, changed, now)
    return changed


def confirm(tx: Connection, token: str, now: int) -> tuple[Subscription, Topic]:
    """Confirm a subscription; return it, with its topic.

    Raises:
        BadToken

    """
    found = subscription_rows.lock_confirmed_by(tx, token_hash(token))
    if found is None or (found.confirmation_until or 0) <= now:
        raise BadToken
    confirmed = found._replace(
        status="confirmed",
        confirmation_nonce=None,
        confirmation_hash=None,
        confirmation_until=None,
        active_since=now,
        faults=[],
        updated_at=now,
    )
    subscription_rows.save_subscription(tx, confirmed)
    delivery_rows.remove_requests(tx, confirmed.account_id, confirmed.id)
    topic = TOPICS.find(tx, confirmed.account_id, confirmed.topic_id)
    assert topic is not None, "a subscription has a topic"
    release_waiting(tx, topic, now)
    return confirmed, topic


def unsubscribe(
    tx: Connection, account_id: str, subscription_id: str
) -> tuple[Subscription, Topic] | None:
    """Delete a subscription as its recipient asks; return what it was, or None if there is none."""
    found = subscription_rows.find_with_topic(tx, account_id, subscription_id)
    if found is None or not subscription_rows.remove_subscription(
        tx, account_id, found[1].id, subscription_id
    ):
        return None
    return found


def _ask(tx: Connection, subscription: Subscription, now: int) -> None:
    """Let the endpoint be asked to confirm."""
    count_ask(tx, subscription, now)
    ids = (subscription.account_id, subscription.id)
    wake(tx, *ids, now)
    delivery_rows.remove_requests(tx, *ids)
    delivery_rows.add_delivery(tx, *ids, None, now)


def _locked(tx: Connection, subscription: Subscription) -> Subscription:
    found = subscription_rows.lock_subscription(
        tx, subscription.account_id, subscription.topic_id, subscription.id
    )
    if found is None:
        raise SubscriptionMissing
    return found
