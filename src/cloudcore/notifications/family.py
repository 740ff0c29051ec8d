"""The notifications family: topics, subscriptions, and deliveries that survive crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.metering.sku import Sku
from cloudcore.notifications.topic import (
    DELIVERIES,
    PUBLISHED_MESSAGES,
    SEND_MESSAGE,
    SUBSCRIPTIONS,
    TOPIC,
    WAITING_BYTES,
    WAITING_DELIVERIES,
)

if TYPE_CHECKING:
    from cloudcore.notifications.needs import NotificationNeeds


NOTIFICATIONS: Final[Family[NotificationNeeds]] = Family(
    name="notifications",
    title="Topics",
    runs="cloudcore.notifications.runtime:RUNTIME",
    paths=("/v1/subscription-confirmations", "/v1/unsubscriptions"),
    skus=(DELIVERIES, Sku("notifications.requests", "Requests of topics", "1000 requests", 1000)),
    resources=(TOPIC,),
    foreign_kinds=(
        ResourceKind(
            crn="crn:queue:<region>:<account>:queue/<name>",
            actions=(SEND_MESSAGE,),
            summaries={
                SEND_MESSAGE: "Send to a queue; also to subscribe it, or have it for dead letters."
            },
        ),
    ),
    commands=(CommandGroup("use the platform's services", ("cloudcore.notifications.commands",)),),
    event_types_by_action={
        "notifications:Subscribe": "notifications.subscription.created",
        "notifications:ConfirmSubscription": "notifications.subscription.confirmed",
        "notifications:DeleteSubscription": "notifications.subscription.deleted",
        "notifications:Unsubscribe": "notifications.subscription.deleted",
    },
    quotas=(PUBLISHED_MESSAGES, SUBSCRIPTIONS, WAITING_BYTES, WAITING_DELIVERIES),
)
