"""Find the queue that a request means: by its id, its CRN or its name."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.queue.rows import Queue, find_queue, find_queue_named
from cloudcore.queue.rules import QueueMissing
from cloudcore.resource_names import Authorize, Kind, Scope, resolve


def resolve_queue(
    tx: Connection,
    account_id: str,
    region: str,
    field: str,
    value: str,
    authorize: Authorize | None,
) -> Queue:
    """Return the queue of an account that `value` in a request's `field` means.

    `authorize` raises unless the caller may use it; None if the platform itself asks.

    Raises:
        InvalidInput: it is no id, name or CRN of a queue, or the CRN is of another region or
            account.
        AccessDenied: by `authorize`.
        QueueMissing: there is no such queue.

    """
    return resolve(tx, Scope(account_id, region), QUEUE, field, value, authorize)


def _find(tx: Connection, scope: Scope, queue_id: str) -> Queue | None:
    found = find_queue(tx, scope.account_id, queue_id)
    return found if found is not None and found.region == scope.region else None


def _find_named(tx: Connection, scope: Scope, name: str) -> Queue | None:
    return find_queue_named(tx, scope.account_id, scope.region, name)


QUEUE: Final = Kind("queue", "queue", _find, _find_named, QueueMissing)
