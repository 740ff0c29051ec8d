"""How Alembic runs revisions: on the connection it is given, in that connection's transaction."""

from __future__ import annotations

from alembic import context

# Their tables join the schema.
import registry.metadata.collection_tables
import registry.metadata.control_tables
import registry.metadata.tables  # noqa: F401
from cloudcore.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,  # SQLite alters most things by copying the table
)
with context.begin_transaction():
    context.run_migrations()
