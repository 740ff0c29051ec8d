"""Number the events of each tag, so that they are counted without being read.

They are forgotten in the order of their numbers from now on, which needs no index on their times.
A deleted tag keeps by which digest it was pushed. One index of tombstones by digest does what two
did: each is a page more to write for every image that is deleted.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    with op.batch_alter_table("tag_events", schema=None) as batch_op:
        batch_op.add_column(sa.Column("ordinal", sa.BigInteger(), nullable=True))
        batch_op.drop_index(batch_op.f("ix_tag_events_occurred_at"))
    op.execute(
        "UPDATE tag_events SET ordinal = numbered.ordinal FROM ("
        "SELECT sequence, row_number() OVER (PARTITION BY repository_id, tag ORDER BY sequence)"
        " AS ordinal FROM tag_events) numbered WHERE numbered.sequence = tag_events.sequence"
    )
    with op.batch_alter_table("tag_events", schema=None) as batch_op:
        batch_op.alter_column("ordinal", existing_type=sa.BigInteger(), nullable=False)
    with op.batch_alter_table("deleted_manifests", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_deleted_manifests_account_id_digest"))
        batch_op.drop_index("uq_deleted_manifests_digest")
        batch_op.create_index(
            "uq_deleted_manifests_digest", ["digest", "repository_id"], unique=True
        )
    digest = sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql")
    op.add_column("deleted_tags", sa.Column("pushed_digest", digest))


def downgrade() -> None:
    with op.batch_alter_table("deleted_tags", schema=None) as batch_op:
        batch_op.drop_column("pushed_digest")
    with op.batch_alter_table("deleted_manifests", schema=None) as batch_op:
        batch_op.drop_index("uq_deleted_manifests_digest")
        batch_op.create_index(
            "uq_deleted_manifests_digest", ["repository_id", "digest"], unique=True
        )
        batch_op.create_index(
            batch_op.f("ix_deleted_manifests_account_id_digest"), ["account_id", "digest"]
        )
    with op.batch_alter_table("tag_events", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_tag_events_occurred_at"), ["occurred_at"], unique=False
        )
        batch_op.drop_column("ordinal")
