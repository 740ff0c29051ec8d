"""Let leases of jobs and turns name the worker process; give messages a media type."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import Id

revision = "0045"
down_revision = "0044"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("lease_holder", Id))
    op.add_column("schedules", sa.Column("lease_holder", Id))
    op.add_column("publications", sa.Column("content_type", sa.Text))
    held = sa.text("lease_holder IS NOT NULL")
    op.create_index(
        "ix_jobs_held", "jobs", ["lease_holder"], sqlite_where=held, postgresql_where=held
    )


def downgrade() -> None:
    op.drop_column("publications", "content_type")
    op.drop_index("ix_jobs_held", table_name="jobs")
    op.drop_column("schedules", "lease_holder")
    op.drop_column("jobs", "lease_holder")
