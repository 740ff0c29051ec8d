"""Sums of what accounts used by hour or by day, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Integer, and_, bindparam, func, or_, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import count
from cloudcore.db.statement import Statement, listed, named, page, text_list
from cloudcore.metering.tables import usage_hours

_u = usage_hours.c
_span = (_u.hour // bindparam("hours", type_=Integer())).label("span")
_sums = (
    select(_span, _u.sku, _u.account_id, func.sum(_u.quantity).label("quantity"))
    .where(
        _u.account_id.in_(listed("accounts")),
        _u.hour >= bindparam("first"),
        _u.hour < bindparam("until"),
        named(_u.sku, "sku"),
    )
    .group_by(_span, _u.sku, _u.account_id)
    .subquery("sums")
)
_s = _sums.c
_LIST: Final = Statement(
    page(
        select(_s.span, _s.sku, _s.account_id, _s.quantity)
        .where(
            or_(
                _s.span > bindparam("span"),
                and_(_s.span == bindparam("span"), _s.sku > bindparam("after_sku")),
                and_(
                    _s.span == bindparam("span"),
                    _s.sku == bindparam("after_sku"),
                    _s.account_id > bindparam("after_account"),
                ),
            )
        )
        .order_by(_s.span, _s.sku, _s.account_id)
    )
)
_COUNT: Final = Statement(select(func.count()).select_from(_sums))


class Asked(NamedTuple):
    """Which use is summed."""

    accounts: Sequence[str]
    """Ids."""
    sku: str
    """Empty: all."""
    first: int
    """Hour, since the epoch."""
    until: int
    """The first hour that is not summed."""
    hours: int
    """Hours of one sum, which begins at a multiple of them."""


class Sum(NamedTuple):
    """What an account used of one SKU in one span of time."""

    span: int
    """In spans since the epoch."""
    sku: str
    account_id: str
    quantity: int
    """Of the SKU's smallest unit."""

    @property
    def place(self) -> tuple[int, str, str]:
        """Return where it is in the list."""
        return self.span, self.sku, self.account_id


def list_sums(
    tx: Connection, asked: Asked, after: tuple[int, str, str] | None, limit: int
) -> list[Sum]:
    """Return up to `limit` sums after one, by time, SKU and account; none of them is 0."""
    span, sku, account_id = after or (-1, "", "")
    rows = tx.rows(
        _LIST, **_given(asked), span=span, after_sku=sku, after_account=account_id, limit=limit
    )
    return [Sum(row[0], row[1], row[2], int(row[3])) for row in rows]


def count_sums(tx: Connection, asked: Asked) -> int:
    """Return how many sums there are."""
    return count(tx, _COUNT, **_given(asked))


def _given(asked: Asked) -> dict[str, object]:
    return {**asked._asdict(), "accounts": text_list(asked.accounts)}
