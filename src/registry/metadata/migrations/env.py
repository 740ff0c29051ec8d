"""Run Alembic's revisions on the given connection, in its transaction."""

from __future__ import annotations

from alembic import context

from cloudcore.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,  # SQLite alters most things by copying the table
)
with context.begin_transaction():
    context.run_migrations()
