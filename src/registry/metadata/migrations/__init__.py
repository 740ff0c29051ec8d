"""Schema migrations: numbered Alembic revisions, one per file in ``versions``.

To change the tables: edit `registry.metadata.tables`, then run

    python -m registry.metadata.migrations "add a column to tags"

which compares the tables with the newest revision and writes the next one. Read the new file and
test it on both databases (``pytest tests/contract/test_migrations.py``). Never edit a released
revision. There are no downgrades: restore a backup instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

_HERE = Path(__file__).parent


def revisions() -> list[str]:
    """Return the numbers of all revisions, oldest first, without loading Alembic."""
    return sorted(file.name[:4] for file in (_HERE / "versions").glob("[0-9]*_*.py"))


def configuration(connection: Connection) -> Config:
    """Return the Alembic configuration that runs commands in the open transaction."""
    from alembic.config import Config  # noqa: PLC0415 - 0.2 s that most starts do not need

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    return config
