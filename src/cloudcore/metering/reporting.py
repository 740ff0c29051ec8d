"""Report use in the transaction of what is used, and read the sums by hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import bound, given, insert_new
from cloudcore.db.statement import Statement
from cloudcore.metering.tables import usage_hours, usage_reports

HOUR: Final = 3600 * MICROSECONDS
KEPT_HOURS: Final = 25 * 31 * 24
"""Hours of which the sums are kept: at least 25 months."""
MOST: Final = 1 << 53
"""Largest quantity of one report: 8 PiB for an hour."""

_u = usage_hours.c
_new = insert(usage_hours).values(bound(("account_id", "hour", "sku", "region", "quantity")))
_ADD: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["account_id", "hour", "sku", "region"],
        set_={"quantity": _u.quantity + _new.excluded.quantity},
    )
)
_NOTE: Final = Statement(insert_new(usage_reports, ("account_id", "sku", "key", "hour")))
_LIST: Final = Statement(
    select(_u.region, _u.sku, _u.hour, _u.quantity)
    .where(
        given(_u.account_id),
        _u.hour >= bindparam("first"),
        _u.hour < bindparam("until"),
    )
    .order_by(_u.hour, _u.sku, _u.region)
)
_FORGET: Final = deletion(_u.hour)
_FORGET_REPORTS: Final = deletion(usage_reports.c.hour)


class Use(NamedTuple):
    """Of what use is summed."""

    account_id: str
    region: str
    sku: str
    hour: int


class HourOfUse(NamedTuple):
    """What an account used of one SKU in a region in one hour."""

    region: str
    sku: str
    hour: int
    quantity: int
    """Of the SKU's smallest unit."""


def report(
    tx: Connection,
    account_id: str,
    region: str,
    sku: str,
    quantity: int,
    at: int,
    key: str | None = None,
) -> bool:
    """Count use at a moment, in microseconds since the epoch; return whether it is counted.

    The report is committed or rolled back with `tx`. One that may be made again has a `key`:
    reports of an account and SKU with the same key count once, whenever they come. Call it last in
    a transaction, since others that use the same wait for its end.
    """
    hour = at // HOUR
    if not 0 <= quantity <= MOST:
        raise ValueError(f"{quantity} of {sku} in one report")
    if key is not None and not tx.execute(
        _NOTE, account_id=account_id, sku=sku, key=key, hour=hour
    ):
        return False
    add(tx, {Use(account_id, region, sku, hour): quantity})
    return True


def add(tx: Connection, uses: Mapping[Use, int]) -> None:
    """Add to the sums of hours."""
    # Sorted, so that two transactions lock rows in the same order and never deadlock.
    for use, quantity in sorted(uses.items()):
        if quantity:
            tx.execute(_ADD, **use._asdict(), quantity=quantity)


def usage(
    tx: Connection, account_id: str, first: int, until: int, skus: Iterable[str] = ()
) -> list[HourOfUse]:
    """Return what an account used from the hour `first` to before the hour `until`, in order.

    Only `skus` if any are given. Hours without use have no row.
    """
    wanted = frozenset(skus)
    rows = tx.rows(_LIST, account_id=account_id, first=first, until=until)
    return [HourOfUse(*row) for row in rows if not wanted or row[1] in wanted]


def forget_hours(tx: Connection, now: int) -> int:
    """Delete a batch of the sums older than `KEPT_HOURS`; return how many."""
    return tx.execute(_FORGET, before=now // HOUR - KEPT_HOURS)


def forget_reports(tx: Connection, now: int) -> int:
    """Delete a batch of the keys of reports as old; return how many."""
    return tx.execute(_FORGET_REPORTS, before=now // HOUR - KEPT_HOURS)
