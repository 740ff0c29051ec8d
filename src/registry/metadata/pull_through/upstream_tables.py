"""The tables of what is known of upstreams: when one may be asked, and what went wrong with it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, String, Table, Text

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata
from registry.metadata.pull_through.tables import pull_through_cache_rules

# A row comes with the first failure, or the first limit that the upstream tells.
upstream_states = Table(
    "upstream_states",
    metadata,
    Column(
        "rule_id",
        Id,
        ForeignKey(pull_through_cache_rules.c.id, ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("paused_until", Moment),  # null: it may be asked
    Column("pause_code", String(32)),  # of the fault for which it is left alone
    Column("failures", Integer, nullable=False),  # in a row, at most one per second
    Column("failed_at", Moment),
    Column("rate_limit", BigInteger),
    Column("rate_remaining", BigInteger),
    Column("rate_window_seconds", BigInteger),
    Column("rate_at", Moment),
    Column("accepted_repository", ByteOrdered),  # for which the rule's credential was accepted
    Column("accepted_at", Moment),
)

# A fault of one code is one row, counted.
upstream_faults = Table(
    "upstream_faults",
    metadata,
    Column(
        "rule_id",
        Id,
        ForeignKey(pull_through_cache_rules.c.id, ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("code", String(32), primary_key=True),
    Column("message", Text, nullable=False),
    Column("stage", String(16), nullable=False),
    Column("http_status", Integer),
    Column("first_at", Moment, nullable=False),
    Column("last_at", Moment, nullable=False),
    Column("occurrences", BigInteger, nullable=False),
)

TABLES: Final = (upstream_states, upstream_faults)
