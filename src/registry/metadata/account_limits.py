"""What operators have set for an account, as a part of the statements that meet it on their way.

So an account without a limit costs no statement of its own.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, func, literal_column, select

from cloudcore.quotas.limits import quota_defaults, quotas
from cloudcore.quotas.quota import Quota


def limit_of(quota: Quota, account_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the limit of an account as a scalar: its own, or the install's; null if none is set.

    `account_id` is a parameter, or a column of the statement.
    """
    name: ColumnElement[str] = literal_column(f"'{quota.name}'")
    own = select(quotas.c.maximum).where(quotas.c.account_id == account_id, quotas.c.name == name)
    every = select(quota_defaults.c.maximum).where(quota_defaults.c.name == name)
    return func.coalesce(own.scalar_subquery(), every.scalar_subquery())
