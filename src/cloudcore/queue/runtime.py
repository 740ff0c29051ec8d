"""The queue family at run time: its routes, schedules and port."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.queue import chores, routes
from cloudcore.queue.needs import OFFERS, QueueNeeds, open_needs
from cloudcore.queue.queues import QUEUES, ROWS
from cloudcore.resources.routes import handlers_of

RUNTIME: Final[Runtime[QueueNeeds]] = Runtime(
    open=open_needs,
    offers=OFFERS,
    routes=handlers_of(QUEUES, routes),
    schedule=scheduled(
        ("queue.due_messages", chores.EVERY_SECONDS, chores.settle_queues),
        ("queue.deleted_queues", chores.EVERY_SECONDS, chores.erase_deleted_queues),
    ),
    uses=(ROWS.counted,),
)
