"""The use of accounts, hour by hour, as it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import given
from cloudcore.db.statement import Statement
from cloudcore.metering.usage import usage_hours

_u = usage_hours.c
_LIST: Final = Statement(
    select(_u.region, _u.sku, _u.hour, _u.quantity)
    .where(given(_u.account_id), _u.hour >= bindparam("first"), _u.hour < bindparam("until"))
    .order_by(_u.hour, _u.sku, _u.region)
)


class HourOfUse(NamedTuple):
    """What an account used of one SKU in a region in one hour."""

    region: str
    sku: str
    hour: int
    quantity: int


def usage(
    tx: Connection, account_id: str, first: int, until: int, skus: Iterable[str] = ()
) -> list[HourOfUse]:
    """Return the use of an account from one hour to before another, of `skus` if any are given."""
    wanted = frozenset(skus)
    rows = tx.rows(_LIST, account_id=account_id, first=first, until=until)
    return [HourOfUse(*row) for row in rows if not wanted or row[1] in wanted]
