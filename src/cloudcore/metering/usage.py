"""Tables of the use of accounts by hour; report use in a transaction, and sum it up.

An hour is a number of hours since the epoch, in UTC. There is no foreign key to accounts: the use
of a deleted account is still shown and billed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, count, deletion, given
from cloudcore.db.schema import ByteOrdered, Id
from cloudcore.db.statement import Statement, listed, named, paged, text_list
from cloudcore.db.tables import columns, indexes, table

usage_hours = table(
    "usage_hours",
    columns(Id, "account_id KEY"),
    columns(sa.Integer, "hour KEY"),
    columns(ByteOrdered, "sku KEY, region KEY"),
    columns(sa.BigInteger, "quantity"),  # of the SKU's smallest unit
    sa.CheckConstraint("quantity > 0", name="quantity"),
    indexes("hour"),
)

# The hours for which the stored amounts of all accounts have been sampled.
usage_samples = table(
    "usage_samples",
    columns(ByteOrdered, "sku KEY"),
    columns(sa.Integer, "hour KEY"),
    indexes("hour"),
)


HOUR: Final = 3600 * MICROSECONDS
KEPT_HOURS: Final = 25 * 31 * 24
"""How many hours of sums are kept: at least 25 months."""
MAX_QUANTITY: Final = 1 << 53
"""Largest quantity of one report: 8 PiB for an hour."""

_u = usage_hours.c
_new = insert(usage_hours).values(bound(("account_id", "hour", "sku", "region", "quantity")))
_ADD: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=["account_id", "hour", "sku", "region"],
        set_={"quantity": _u.quantity + _new.excluded.quantity},
    )
)
forget_hours: Final = deletion(_u.hour, kept_seconds=KEPT_HOURS * 3600, unit=HOUR)
"""Deletes a batch of the sums older than `KEPT_HOURS`."""


class SkuUse(NamedTuple):
    """The key of a sum: account, region, SKU and hour."""

    account_id: str
    region: str
    sku: str
    hour: int


def report(tx: Connection, account_id: str, region: str, sku: str, quantity: int, at: int) -> None:
    """Add use to the sum of the hour of `at`, a moment in microseconds since the epoch.

    `quantity` is in the SKU's smallest unit. Raise `ValueError` if it is negative or too large.

    The report is committed or rolled back with `tx`. Call this last in a transaction, since other
    transactions that add to the same sum wait for the end of `tx`.
    """
    if not 0 <= quantity <= MAX_QUANTITY:
        raise ValueError(f"{quantity} of {sku} in one report")
    add(tx, {SkuUse(account_id, region, sku, at // HOUR): quantity})


def add(tx: Connection, uses: Mapping[SkuUse, int]) -> None:
    """Add quantities to the sums of their hours."""
    # Sorted, so that two transactions lock rows in the same order and never deadlock.
    for use, quantity in sorted(uses.items()):
        if quantity:
            tx.execute(_ADD, **use._asdict(), quantity=quantity)


_span = (_u.hour // sa.bindparam("hours", type_=sa.Integer())).label("span")
_sums = (
    sa.select(_span, _u.sku, _u.account_id, sa.func.sum(_u.quantity).label("quantity"))
    .where(
        _u.account_id.in_(listed("accounts")),
        _u.hour >= sa.bindparam("first"),
        _u.hour < sa.bindparam("until"),
        named(_u.sku, "sku"),
    )
    .group_by(_span, _u.sku, _u.account_id)
    .subquery("sums")
)
_s = _sums.c
_LIST_SUMS: Final = paged(
    sa.select(_s.span, _s.sku, _s.account_id, _s.quantity)
    .where(
        sa.or_(
            _s.span > sa.bindparam("span"),
            sa.and_(given(_s.span), _s.sku > sa.bindparam("after_sku")),
            sa.and_(
                given(_s.span),
                _s.sku == sa.bindparam("after_sku"),
                _s.account_id > sa.bindparam("after_account"),
            ),
        )
    )
    .order_by(_s.span, _s.sku, _s.account_id)
)
_COUNT: Final = Statement(sa.select(sa.func.count()).select_from(_sums))


class UsageSelection(NamedTuple):
    """The accounts, SKU and hours whose use is summed."""

    accounts: Sequence[str]
    """Ids of the accounts."""
    sku: str
    """Name of the SKU; empty for all SKUs."""
    first: int
    """The first hour that is summed, counted from the epoch."""
    until: int
    """The first hour that is not summed."""
    hours: int
    """Length of one sum in hours. Sums begin at multiples of this length since the epoch."""


class Sum(NamedTuple):
    """What an account used of one SKU in one span of time."""

    span: int
    """The number of the span, counted from the epoch."""
    sku: str
    account_id: str
    quantity: int
    """The quantity in the SKU's smallest unit."""

    @property
    def place(self) -> tuple[int, str, str]:
        """Return the sum's position in the list: time, SKU and account."""
        return self.span, self.sku, self.account_id


def list_sums(
    tx: Connection, asked: UsageSelection, after: tuple[Any, ...] | None, limit: int
) -> list[Sum]:
    """Return up to `limit` sums after the place `after`, sorted by time, SKU and account.

    No sum is 0. If `after` is None, begin with the first sum.
    """
    span, sku, account_id = after or (-1, "", "")
    rows = tx.rows(
        _LIST_SUMS, **_given(asked), span=span, after_sku=sku, after_account=account_id, limit=limit
    )
    return [Sum(row[0], row[1], row[2], int(row[3])) for row in rows]


def count_sums(tx: Connection, asked: UsageSelection) -> int:
    """Return the number of sums that `list_sums` would list."""
    return count(tx, _COUNT, **_given(asked))


def _given(asked: UsageSelection) -> dict[str, object]:
    return {**asked._asdict(), "accounts": text_list(asked.accounts)}
