"""The machines that run the service: each writes a heartbeat every few seconds.

A machine without a heartbeat for a while is lost, and so are the resources placed on it, until the
machine is back. The resources are not started elsewhere, as nobody can tell whether they still run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa
from msgspec import structs

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database, Row
from cloudcore.db.rows import bound, columns_of, given, insert_new, json_text
from cloudcore.db.schema import ByteOrdered, Id, Moment
from cloudcore.db.statement import Statement, paged
from cloudcore.db.tables import columns, table
from cloudcore.errors import Conflict
from cloudcore.nodes.node import NODE_LOST, Node
from cloudcore.nodes.placed import Placed
from cloudcore.ports import Port
from cloudcore.resources.resource import DELETING, Record
from cloudcore.resources.rows import Rows

SEEN_SECONDS: Final = 10
"""Seconds between two heartbeats of a machine."""
LOST_SECONDS: Final = 60
"""Seconds without a heartbeat after which a machine is lost."""
LOOK_SECONDS: Final = 10
_BATCH: Final = 100
"""Maximum number of rows that one transaction changes."""
_PAGE: Final = 500

nodes = table(
    "nodes",
    columns(ByteOrdered, "name KEY"),
    # Id of the machine's folder, so that no second machine takes the name.
    columns(Id, "identity"),
    columns(sa.Text, "capabilities"),
    columns(Moment, "seen_at"),
    columns(sa.Boolean, "is_lost"),
    # True once the resources on the machine were updated for `is_lost`.
    columns(sa.Boolean, "is_noted"),
    # When a process of the machine was last stopped in order; null if one has started since.
    columns(Moment, "stopped_at NULL"),
)
_n = nodes.c


class NodeRow(NamedTuple):
    """A machine's row."""

    name: str
    identity: str
    capabilities: str
    seen_at: int
    is_lost: bool
    is_noted: bool
    stopped_at: int | None = None


_FIND: Final = Statement(columns_of(nodes, NodeRow._fields).where(given(_n.name)).with_for_update())
_LIST: Final = Statement(columns_of(nodes, NodeRow._fields).order_by(_n.name))
_INSERT: Final = Statement(insert_new(nodes, NodeRow._fields))
_CLAIM: Final = Statement(
    nodes.update()
    .where(_n.name == sa.bindparam("node"))
    .values(**bound(("identity", "capabilities", "seen_at")), stopped_at=sa.text("NULL"))
)
_NOTE_STOPPED: Final = Statement(
    nodes.update()
    .where(_n.name == sa.bindparam("node"), _n.identity == sa.bindparam("held"))
    .values(stopped_at=sa.bindparam("stopped_at"))
)
_NOTE_SEEN: Final = Statement(
    nodes.update()
    .where(_n.name == sa.bindparam("node"), _n.identity == sa.bindparam("held"))
    .values(seen_at=sa.bindparam("seen_at"), stopped_at=sa.text("NULL"))
)
_FORGET: Final = Statement(nodes.delete())
_SET_LOST: Final = Statement(
    nodes.update()
    .where(_n.name == sa.bindparam("node"))
    .values(is_lost=sa.bindparam("is_lost"), is_noted=sa.text("false"))
)
_SET_NOTED: Final = Statement(
    nodes.update()
    .where(_n.name == sa.bindparam("node"), _n.is_lost == sa.bindparam("was_lost"))
    .values(is_noted=sa.text("true"))
)


P = TypeVar("P", bound=Record)


class OnNode(Generic[P]):
    """Reads the records of one kind that are on a machine, for all accounts, sorted by id."""

    def __init__(self, rows: Rows[P]) -> None:
        c = rows.table.c
        live = (c.deleted_at.is_(None),) if rows.of.keeps_deleted else ()
        here = (given(c.node), *live, c.id > sa.bindparam("after"))
        self._rows: Final = rows
        self.statement: Final = paged(rows.columns.where(*here).order_by(c.id))

    def page(self, tx: Connection, node: str, after: str, limit: int) -> Sequence[P]:
        """Return up to `limit` records after the id `after`."""
        return self._rows.read_all(tx, self.statement, node=node, after=after, limit=limit)

    def all(self, tx: Connection, node: str) -> Sequence[P]:
        """Return all records on a machine."""
        found: list[P] = []
        while more := self.page(tx, node, found[-1].id if found else "", _PAGE):
            found += more
        return found


class Placing:
    """A kind of resource that is placed on machines."""

    def __init__(
        self,
        rows: Rows[Any],
        wake: Callable[[Connection, Any, int], None] | None = None,
        lost_status: str | None = "degraded",
        needs_node: Callable[[Any], bool] = lambda _found: True,
    ) -> None:
        """Describe the `rows` of `Placed` records; most tables have an index of ``node, id``.

        `wake` wakes the workflow of a resource whose machine is back. A resource whose machine is
        lost gets `lost_status`; None leaves its status. `needs_node`, a pure function, returns
        False for a resource that no longer needs its machine.
        """
        self.rows: Final = rows
        self.wake: Final = wake
        self.lost_status: Final = lost_status
        self.needs_node: Final = needs_node
        self.on_node: Final = OnNode(rows)


PLACINGS: Final[Port[Sequence[Placing]]] = Port("platform.placings")
"""The kinds of resources that the families of an edition place on machines."""


def claim(tx: Connection, node: Node, identity: str, now: int) -> None:
    """Register this machine, when one of its processes starts.

    Raise `Conflict` if a machine with another folder runs under this name.
    """
    found = _find(tx, node.name)
    if found is not None and found.identity != identity and not _is_late(found, now):
        raise Conflict(
            f"another machine runs as {node.name!r}; give each its own node_name, or wait a minute"
            " if this one takes its place"
        )
    capabilities = json_text(node.capabilities)
    if found is None:
        new = NodeRow(node.name, identity, capabilities, now, is_lost=False, is_noted=True)
        tx.execute(_INSERT, **new._asdict())
    tx.execute(_CLAIM, node=node.name, identity=identity, capabilities=capabilities, seen_at=now)


def forget_nodes(tx: Connection) -> None:
    """Delete all machines, in a restored database, so that new machines can take their names."""
    tx.execute(_FORGET)


def note_seen(tx: Connection, name: str, identity: str, now: int) -> bool:
    """Store the heartbeat of a machine; return False if another machine has taken its name."""
    return tx.execute(_NOTE_SEEN, node=name, held=identity, seen_at=now) == 1


def note_stopped(tx: Connection, name: str, identity: str, now: int) -> None:
    """Store that a process of a machine was stopped: the machine no longer counts as running."""
    tx.execute(_NOTE_STOPPED, node=name, held=identity, stopped_at=now)


def list_running(tx: Connection, now: int) -> Sequence[NodeRow]:
    """Return the machines that are not stopped and have a heartbeat within `LOST_SECONDS`."""
    return [each for each in list_nodes(tx) if each.stopped_at is None and not _is_late(each, now)]


def choose(tx: Connection, capability: str, now: int) -> str | None:
    """Return the name of a random running machine with a capability, or None if there is none."""
    fit = [
        each.name
        for each in list_running(tx, now)
        if capability in msgspec.json.decode(each.capabilities)
    ]
    return random.choice(fit) if fit else None  # noqa: S311 - any will do


def can_run(tx: Connection, name: str, capability: str) -> bool:
    """Return True if a machine has a capability, whether or not it runs now."""
    found = _find(tx, name)
    return found is not None and capability in msgspec.json.decode(found.capabilities)


async def look(database: Database, clock: Clock, placings: Sequence[Placing]) -> None:
    """Update the resources on machines that were lost or are back: set a status, or wake a job."""
    for each in await database.read(list_nodes):
        late = _is_late(each, clock())
        if late != each.is_lost:
            await database.write(_set_lost, each.name, late)
        elif each.is_noted:
            continue
        for placing in placings:
            await _note(database, clock, placing, each.name, is_lost=late)
        await database.write(_set_noted, each.name, late)


async def _note(
    database: Database, clock: Clock, placing: Placing, node: str, *, is_lost: bool
) -> None:
    after = ""
    while found := await database.read(placing.on_node.page, node, after, _BATCH):
        change = partial(_note_batch, placing, found, clock(), is_lost=is_lost)
        await database.write(change)
        after = found[-1].id


def _note_batch(
    placing: Placing, found: Sequence[Record], now: int, tx: Connection, *, is_lost: bool
) -> None:
    for each in found:
        change = partial(_lost, placing=placing, now=now) if is_lost else _back
        changed = placing.rows.change(tx, each.account_id, each.id, change, now)
        if changed is None or placing.wake is None or is_lost:
            continue
        if placing.needs_node(changed[1]):
            placing.wake(tx, changed[1], now)


def _lost(found: Placed, placing: Placing, now: int) -> Placed:
    is_noted = any(each.code == NODE_LOST for each in found.faults)
    if is_noted or not placing.needs_node(found):
        return found
    words = f"the machine {found.node} was not seen for a minute; it goes on when it is back"
    keeps = found.status == DELETING or placing.lost_status is None
    status = found.status if keeps else placing.lost_status
    return structs.replace(found.with_fault(NODE_LOST, words, now), status=status)


def _back(found: Placed) -> Placed:
    return found.without_faults(NODE_LOST)


def _find(tx: Connection, name: str) -> NodeRow | None:
    row = tx.row(_FIND, name=name)
    return None if row is None else _node(row)


def list_nodes(tx: Connection) -> Sequence[NodeRow]:
    """Return all machines that were ever registered, sorted by name."""
    return [_node(row) for row in tx.rows(_LIST)]


def _node(row: Row) -> NodeRow:
    found = NodeRow(*row)
    return found._replace(is_lost=bool(found.is_lost), is_noted=bool(found.is_noted))


def _is_late(found: NodeRow, now: int) -> bool:
    return found.seen_at < now - LOST_SECONDS * MICROSECONDS


def _set_lost(tx: Connection, name: str, is_lost: bool) -> None:  # noqa: FBT001 - what is stored
    tx.execute(_SET_LOST, node=name, is_lost=is_lost)


def _set_noted(tx: Connection, name: str, was_lost: bool) -> None:  # noqa: FBT001 - what is stored
    tx.execute(_SET_NOTED, node=name, was_lost=was_lost)
