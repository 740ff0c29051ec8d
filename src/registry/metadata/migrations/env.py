"""Run Alembic's revisions on the given connection, in its transaction."""

from __future__ import annotations

from alembic import context

from registry.families import FAMILIES

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=[*{table.metadata for family in FAMILIES for table in family.tables()}],
    transactional_ddl=True,
    render_as_batch=True,  # SQLite alters most things by copying the table
)
with context.begin_transaction():
    context.run_migrations()
