"""The notifications family at run time: its routes and job kinds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from cloudcore.family import Runtime
from cloudcore.jobs import outbox
from cloudcore.jobs.kinds import OUTBOUND_SLOTS, JobKind
from cloudcore.notifications import (
    delivery_rows,
    recipient_routes,
    subscription_routes,
    topic_routes,
    topics,
)
from cloudcore.notifications.delivering import Deliverer
from cloudcore.notifications.needs import NotificationNeeds, open_needs
from cloudcore.notifications.publishing import UNDELIVERED_USE, FanOut, release
from cloudcore.resources.routes import handlers_of

STEP_SECONDS: Final = 120


def _job_kinds(needs: NotificationNeeds) -> Sequence[JobKind]:
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


RUNTIME: Final[Runtime[NotificationNeeds]] = Runtime(
    open=open_needs,
    routes=handlers_of(topics.TOPICS, topic_routes, subscription_routes, recipient_routes),
    job_kinds=_job_kinds,
    expiry=(
        delivery_rows.forget_publications,
        topics.forget_waiting,
        topics.forget_old_missing,
    ),
    uses=(
        topics.ROWS.counted,
        delivery_rows.WAITING,
        delivery_rows.WAITING_SIZE,
        UNDELIVERED_USE,
    ),
)
