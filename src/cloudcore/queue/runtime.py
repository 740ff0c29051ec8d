"""The family of queues in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.queue import chores
from cloudcore.queue.needs import OFFERS, QueueNeeds, open_needs
from cloudcore.queue.queues import ROWS
from cloudcore.queue.routes import HANDLERS

RUNTIME: Final[Runtime[QueueNeeds]] = Runtime(
    open=open_needs,
    offers=OFFERS,
    routes=HANDLERS,
    schedule=scheduled(
        ("queue.due_messages", chores.EVERY_SECONDS, chores.settle_queues),
        ("queue.deleted_queues", chores.EVERY_SECONDS, chores.erase_deleted_queues),
    ),
    uses=(ROWS.counted,),
)
