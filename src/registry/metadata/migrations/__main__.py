"""Write the next revision: ``python -m registry.metadata.migrations "what it does"``."""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module

from alembic import command

from registry.composition.families import FAMILIES
from registry.metadata.database import migrate, migration_connection
from registry.metadata.migrations import configuration, revisions


def describe_tables() -> None:
    """Import all modules that define tables; this adds them to `cloudcore.db.schema.metadata`."""
    for family in FAMILIES:
        _ = family.runtime
    import_module("cloudcore.nodes.fleet")  # no family uses its table


def main(message: str) -> None:
    """Compare the tables with a database at the newest revision; write the next revision."""
    describe_tables()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/metadata.db"
        migrate(url)
        with migration_connection(url) as connection:
            command.revision(
                configuration(connection),
                message,
                autogenerate=True,
                rev_id=f"{int(revisions()[-1]) + 1:04}",
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
