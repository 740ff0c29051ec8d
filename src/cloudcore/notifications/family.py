"""The family of notifications: topics, subscriptions, and deliveries that survive crashes."""

from __future__ import annotations

from collections.abc import Sequence
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
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.db.rows import Forget
    from cloudcore.jobs.kinds import JobKind
    from cloudcore.notifications.needs import NotificationNeeds
    from cloudcore.ports import Opening
    from cloudcore.quotas.limits import Counted

STEP_SECONDS: Final = 120


async def _open(opening: Opening) -> NotificationNeeds:
    from cloudcore.notifications import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.notifications import recipient_routes, subscription_routes, topic_routes  # noqa: PLC0415 - the web framework

    return (
        *topic_routes.HANDLERS,
        *subscription_routes.HANDLERS,
        *recipient_routes.HANDLERS,
    )


def _job_kinds(needs: NotificationNeeds) -> Sequence[JobKind]:
    from functools import partial  # noqa: PLC0415

    from cloudcore.jobs import outbox  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.jobs.kinds import OUTBOUND_SLOTS, JobKind  # noqa: PLC0415
    from cloudcore.notifications import delivery_rows  # noqa: PLC0415
    from cloudcore.notifications.delivering import Deliverer  # noqa: PLC0415
    from cloudcore.notifications.publishing import FanOut, release  # noqa: PLC0415

    return (
        outbox.delivery(needs.database, needs.clock, [FanOut(needs)]),
        JobKind(name=delivery_rows.RELEASE, step=partial(release, needs), max_attempts=None),
        JobKind(
            name=delivery_rows.DELIVER,
            step=Deliverer(needs=needs).step,
            max_attempts=None,
            step_seconds=STEP_SECONDS,
            slots=OUTBOUND_SLOTS,
        ),
    )


def _expiry() -> Sequence[Forget]:
    from cloudcore.notifications import delivery_rows, topics  # noqa: PLC0415 - SQLAlchemy

    return (
        delivery_rows.forget_publications,
        topics.forget_waiting,
        topics.forget_old_missing,
    )


def _uses() -> Sequence[Counted]:
    from cloudcore.notifications import delivery_rows, publishing, topics  # noqa: PLC0415

    waiting = (delivery_rows.WAITING, delivery_rows.WAITING_SIZE, publishing.ON_THEIR_WAY)
    return (topics.ROWS.counted, *waiting)


NOTIFICATIONS: Final[Family[NotificationNeeds]] = Family(
    name="notifications",
    title="Topics",
    paths=("/v1/subscription-confirmations", "/v1/unsubscriptions"),
    open=_open,
    uses=_uses,
    routes=_routes,
    job_kinds=_job_kinds,
    expiry=_expiry,
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
    told_changes={
        "notifications:Subscribe": "notifications.subscription.created",
        "notifications:ConfirmSubscription": "notifications.subscription.confirmed",
        "notifications:DeleteSubscription": "notifications.subscription.deleted",
        "notifications:Unsubscribe": "notifications.subscription.deleted",
    },
    quotas=(PUBLISHED_MESSAGES, SUBSCRIPTIONS, WAITING_BYTES, WAITING_DELIVERIES),
)
