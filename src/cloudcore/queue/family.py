"""The family of queues: messages wait until a consumer has leased and acknowledged them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.metering.sku import Sku
from cloudcore.queue.queue import QUEUE, QUEUE_BYTES, QUEUE_MESSAGES

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.ports import Offer, Opening
    from cloudcore.queue.needs import QueueNeeds
    from cloudcore.quotas.limits import Counted


async def _open(opening: Opening) -> QueueNeeds:
    from cloudcore.queue.needs import QueueNeeds  # noqa: PLC0415 - SQLAlchemy

    return QueueNeeds.of(opening.install.database, opening.install.clock)


def _offers() -> Sequence[Offer]:
    from cloudcore.queue import needs  # noqa: PLC0415 - SQLAlchemy

    return needs.OFFERS


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.queue.routes import HANDLERS  # noqa: PLC0415 - the web framework

    return HANDLERS


def _schedule(needs: QueueNeeds) -> Sequence[Scheduled]:
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415
    from cloudcore.queue import chores  # noqa: PLC0415 - SQLAlchemy

    settle, erase = (
        partial(chores.settle_queues, needs),
        partial(chores.erase_deleted_queues, needs),
    )
    return (
        Scheduled("queue.due_messages", chores.EVERY_SECONDS, settle),
        Scheduled("queue.deleted_queues", chores.EVERY_SECONDS, erase),
    )


def _uses() -> Sequence[Counted]:
    from cloudcore.queue.queues import ROWS  # noqa: PLC0415 - SQLAlchemy

    return (ROWS.counted,)


QUEUES: Final[Family[QueueNeeds]] = Family(
    name="queue",
    title="Queues",
    open=_open,
    uses=_uses,
    offers=_offers,
    routes=_routes,
    schedule=_schedule,
    skus=(Sku("queue.requests", "Requests of queues", "1000 requests", 1000),),
    resources=(QUEUE,),
    told_changes={"queue:PurgeQueue": "queue.queue.purged"},
    quotas=(QUEUE_BYTES, QUEUE_MESSAGES),
    commands=(CommandGroup("use the platform's services", ("cloudcore.queue.commands",)),),
)
