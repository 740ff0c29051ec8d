"""What all machines of an install have in common: the settings that must be the same on each.

A machine that starts compares its own with those that the others run by. The rows are the settings
of the last that started; they change only while no other machine runs. One that was silent for a
minute counted as one that did not run: so each compares them whenever it says that it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Column, Table, Text, literal_column, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import insert_new, insert_or_change
from cloudcore.db.schema import ByteOrdered, metadata
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict
from cloudcore.nodes.node import Node
from cloudcore.nodes.rows import claim, list_running

fleet_settings = Table(
    "fleet_settings",
    metadata,
    Column("name", ByteOrdered, primary_key=True),
    Column("value", Text, nullable=False),
)
_f = fleet_settings.c
_FIELDS: Final = ("name", "value")
_ADD: Final = Statement(insert_new(fleet_settings, _FIELDS))
_PUT: Final = Statement(insert_or_change(fleet_settings, _FIELDS))
_LIST: Final = Statement(select(_f.name, _f.value).order_by(_f.name))
_HOLD: Final = Statement(
    select(_f.name)
    .order_by(_f.name)
    .limit(literal_column("1"))
    .offset(literal_column("0"))
    .with_for_update(read=True, key_share=True)
)
_LOCK: Final = Statement(select(_f.name, _f.value).order_by(_f.name).with_for_update())


class Difference(NamedTuple):
    """A setting that is another one here than on the machines that run."""

    name: str
    here: str
    there: str


class Differs(Conflict):
    """A machine has other settings than those that run."""


class Joined(NamedTuple):
    """What a machine found when it began."""

    others: Sequence[str]
    """Names of the other machines that run."""
    differences: Sequence[Difference]
    """If there are any, the machine has not joined."""


def join(
    tx: Connection, node: Node, identity: str, settings: Mapping[str, str], now: int
) -> Joined:
    """Say that a machine is there, if its settings are those of the machines that run.

    Machines that begin at once do so one after the other. Settings that only one version of the
    program knows are compared by machines of that version.

    Raises:
        Conflict: another machine has its name.

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
    """Compare the settings of a machine that runs: others may have begun while it was silent.

    None begins before the transaction ends.

    Raises:
        Differs: others have begun with other ones.

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
