"""Find the queue that a request means: by its id, its CRN or its name."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.queue.rows import Queue, find_queue, find_queue_named, handle_of
from cloudcore.queue.rules import QueueMissing
from cloudcore.resource_names import Kind, Scope, read_reference

QUEUE: Final = Kind("queue", "queue")


def resolve_queue(tx: Connection, account_id: str, region: str, field: str, value: str) -> Queue:
    """Return the queue of an account that `value` in a request's `field` means.

    Raises:
        InvalidInput: it is no id, name or CRN of a queue, or the CRN is of another region or
            account.
        QueueMissing: there is no such queue.

    """
    handle = handle_of(tx, account_id) if value.startswith("crn:") else ""
    meant = read_reference(Scope(account_id, handle, region), QUEUE, field, value)
    if meant.id is not None:
        found = find_queue(tx, account_id, meant.id)
    else:
        found = find_queue_named(tx, account_id, region, meant.name)
    if found is None or found.region != region:
        raise QueueMissing
    return found
