"""Give buckets and subscriptions the columns that all resources of accounts have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

from cloudcore.db.schema import ByteOrdered, Moment

revision = "0051"
down_revision = "0049"

_REGION = "(SELECT region FROM topics WHERE topics.id = topic_id)"


def upgrade() -> None:
    op.add_column("storage_buckets", sa.Column("updated_at", Moment))
    op.execute("UPDATE storage_buckets SET updated_at = created_at")
    with op.batch_alter_table("storage_buckets") as batch:
        batch.alter_column("updated_at", existing_type=Moment, nullable=False)
    op.create_index("ix_storage_buckets_account_id_id", "storage_buckets", ["account_id", "id"])
    op.add_column("subscriptions", sa.Column("region", ByteOrdered))
    op.execute(f"UPDATE subscriptions SET region = {_REGION}")  # noqa: S608 - no input
    with op.batch_alter_table("subscriptions") as batch:
        batch.alter_column("region", existing_type=ByteOrdered, nullable=False)
        batch.create_unique_constraint(op.f("uq_subscriptions_id_account_id"), ["id", "account_id"])
        _rename_expiry(batch, "confirmation_until", "confirmation_expires_at")
    op.drop_index("ix_subscriptions_account_id", "subscriptions")
    op.create_index("ix_subscriptions_account_id_id", "subscriptions", ["account_id", "id"])


def downgrade() -> None:
    op.drop_index("ix_subscriptions_account_id_id", "subscriptions")
    op.create_index("ix_subscriptions_account_id", "subscriptions", ["account_id"])
    with op.batch_alter_table("subscriptions") as batch:
        _rename_expiry(batch, "confirmation_expires_at", "confirmation_until")
        batch.drop_constraint(op.f("uq_subscriptions_id_account_id"), type_="unique")
        batch.drop_column("region")
    op.drop_index("ix_storage_buckets_account_id_id", "storage_buckets")
    op.drop_column("storage_buckets", "updated_at")


def _rename_expiry(batch: BatchOperations, before: str, after: str) -> None:
    batch.drop_constraint(op.f(f"ck_subscriptions_{before}"), type_="check")
    batch.alter_column(before, new_column_name=after, existing_type=Moment)
    is_whole = f"(confirmation_hash IS NULL) = ({after} IS NULL)"
    batch.create_check_constraint(op.f(f"ck_subscriptions_{after}"), is_whole)
