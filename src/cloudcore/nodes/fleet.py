"""Check that all machines of an install have the same settings.

A machine compares its settings with the stored ones when it starts. The stored settings are those
of the machine that started last; they can change only while no other machine runs. A machine that
was silent for a minute counts as stopped, so each machine compares again with every heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, insert_new, insert_or_change
from cloudcore.db.schema import ByteOrdered
from cloudcore.db.statement import Statement
from cloudcore.db.tables import columns, table
from cloudcore.errors import Conflict
from cloudcore.nodes.node import Node
from cloudcore.nodes.rows import claim, list_running

fleet_settings = table(
    "fleet_settings",
    columns(ByteOrdered, "name KEY"),
    columns(sa.Text, "value"),
)
_f = fleet_settings.c
_FIELDS: Final = ("name", "value")
_ADD: Final = Statement(insert_new(fleet_settings, _FIELDS))
_PUT: Final = Statement(insert_or_change(fleet_settings, _FIELDS))
_LIST: Final = Statement(sa.select(_f.name, _f.value).order_by(_f.name))
_HOLD: Final = Statement(
    sa.select(_f.name)
    .order_by(_f.name)
    .limit(ONE)
    .offset(ZERO)
    .with_for_update(read=True, key_share=True)
)
_LOCK: Final = Statement(sa.select(_f.name, _f.value).order_by(_f.name).with_for_update())


class Difference(NamedTuple):
    """A setting whose value differs between this machine and the running ones."""

    name: str
    here: str
    there: str


class Differs(Conflict):
    """A machine's settings differ from those of the running machines."""


class Joined(NamedTuple):
    """The result of `join`."""

    others: Sequence[str]
    """Names of the other machines that run."""
    differences: Sequence[Difference]
    """If there are any, the machine has not joined."""


def join(
    tx: Connection, node: Node, identity: str, settings: Mapping[str, str], now: int
) -> Joined:
    """Register a machine, if its settings are the same as those of the running machines.

    Machines that start at the same time are registered one after the other. A setting that exists
    only in one version of the program is compared only among machines with that version.

    Raise `Conflict` if another machine has the same name.
    """
    for name, value in sorted(settings.items()):
        tx.execute(_ADD, name=name, value=value)
    differences = _differences(dict(tx.rows(_LOCK)), settings)
    others = [each.name for each in list_running(tx, now) if each.name != node.name]
    if differences and others:
        return Joined(others, differences)
    for each in differences:
        tx.execute(_PUT, name=each.name, value=each.here)
    claim(tx, node, identity, now)
    return Joined(others, ())


def check_same(tx: Connection, _now: int, *, settings: Mapping[str, str]) -> None:
    """Compare the settings of a running machine: others may have started while it was silent.

    No machine can start before the transaction ends.

    Raise `Differs` if others have started with other settings.
    """
    if not settings:
        return
    tx.row(_HOLD)
    if found := _differences(dict(tx.rows(_LIST)), settings):
        words = "; ".join(f"{each.name} is {each.here!r}, not {each.there!r}" for each in found)
        raise Differs(
            f"while this machine was not heard, others began with other settings: {words}"
        )


def _differences(kept: Mapping[str, str], settings: Mapping[str, str]) -> Sequence[Difference]:
    return [
        Difference(name, value, kept[name])
        for name, value in sorted(settings.items())
        if kept.get(name, value) != value
    ]
