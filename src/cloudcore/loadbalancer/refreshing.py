"""Let load balancers follow what changes elsewhere."""

from __future__ import annotations

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.rows import ROWS
from cloudcore.loadbalancer.work import WORK
from cloudcore.resources.record import DELETING


def pool_changed(tx: Connection, account_id: str, pool_id: str, now: int) -> None:
    """Let the load balancers that lead to a pool follow its instances."""
    for each in rows.using_pool(tx, account_id, pool_id):
        found = ROWS.find(tx, account_id, each)
        if found is None or found.status == DELETING:
            continue
        WORK.wake(tx, found, now)  # first: a step too locks its job, and then the record
        try:
            current = ROWS.lock(tx, account_id, each)
        except NotFound:
            continue
        ROWS.save(tx, structs.replace(current, generation=current.generation + 1))
