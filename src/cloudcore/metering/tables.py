"""The tables of metering. An hour is a number of hours since the epoch, in UTC.

None refers to accounts: what was used is told, and billed, also of what is gone.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, Table

from cloudcore.db.schema import ByteOrdered, Id, metadata

usage_hours = Table(
    "usage_hours",
    metadata,
    Column("account_id", Id, primary_key=True),
    Column("hour", Integer, primary_key=True),
    Column("sku", ByteOrdered, primary_key=True),
    Column("region", ByteOrdered, primary_key=True),
    Column("quantity", BigInteger, nullable=False),  # of the SKU's smallest unit
    CheckConstraint("quantity > 0", name="quantity"),
    Index(None, "hour"),
)

# The reports that may come again, as long as the hours that they count in.
usage_reports = Table(
    "usage_reports",
    metadata,
    Column("account_id", Id, primary_key=True),
    Column("sku", ByteOrdered, primary_key=True),
    Column("key", ByteOrdered, primary_key=True),
    Column("hour", Integer, nullable=False),
    Index(None, "hour"),
)

# The hours for which it has been counted what all accounts store.
usage_samples = Table(
    "usage_samples",
    metadata,
    Column("sku", ByteOrdered, primary_key=True),
    Column("hour", Integer, primary_key=True),
    Index(None, "hour"),
)
