"""The queue family: messages wait until a consumer has leased and acknowledged them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.metering.sku import Sku
from cloudcore.queue.queue import QUEUE, QUEUE_BYTES, QUEUE_MESSAGES

if TYPE_CHECKING:
    from cloudcore.queue.needs import QueueNeeds


QUEUES: Final[Family[QueueNeeds]] = Family(
    name="queue",
    title="Queues",
    runs="cloudcore.queue.runtime:RUNTIME",
    skus=(Sku("queue.requests", "Requests of queues", "1000 requests", 1000),),
    resources=(QUEUE,),
    event_types_by_action={"queue:PurgeQueue": "queue.queue.purged"},
    quotas=(QUEUE_BYTES, QUEUE_MESSAGES),
    commands=(CommandGroup("use the platform's services", ("cloudcore.queue.commands",)),),
)
