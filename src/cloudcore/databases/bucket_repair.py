"""Derive again which buckets the clusters need.

The version before the table `bucket_uses` may run beside this one during an upgrade, and notes
nothing there of the clusters that it makes and deletes. One release later this can go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Text, exists, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.databases.cluster import CLUSTER
from cloudcore.databases.rows import CLUSTERS
from cloudcore.db.statement import Statement
from cloudcore.storage.tables import bucket_uses, storage_buckets

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds
    from cloudcore.db.base import Connection

EVERY_SECONDS: Final = 3600
_c, _b, _u = CLUSTERS.table.c, storage_buckets.c, bucket_uses.c
_WORDS: Final = literal_column(f"'{CLUSTER.noun} '", Text)
_OF_CLUSTERS: Final = literal_column(f"'{CLUSTER.noun} %'", Text)
_ADD: Final = Statement(
    insert(bucket_uses)
    .from_select(
        [_u.bucket_id, _u.user_id, _u.account_id, _u.words],
        select(_b.id, _c.id, _c.account_id, _WORDS.concat(_c.name))
        .join_from(CLUSTERS.table, storage_buckets, _b.id == _c.bucket)
        .where(
            _b.account_id == _c.account_id,
            ~exists().where(_u.bucket_id == _b.id, _u.user_id == _c.id),
        ),
    )
    .on_conflict_do_nothing()
)
_REMOVE: Final = Statement(
    bucket_uses.delete().where(~exists().where(_c.id == _u.user_id), _u.words.like(_OF_CLUSTERS))
)


async def repair(needs: DatabaseNeeds) -> None:
    """Note the buckets that clusters need, and forget those of clusters that are gone."""
    await needs.database.write(_repair)


def _repair(tx: Connection) -> None:
    tx.execute(_ADD)
    tx.execute(_REMOVE)
