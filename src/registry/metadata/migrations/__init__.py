"""The history of the tables, one numbered Alembic revision a file in ``versions``.

To change the tables: edit `registry.metadata.tables`, then run

    python -m registry.metadata.migrations "add a column to tags"

which compares the tables with the newest revision and writes the next one. Read what it wrote,
try it on both databases (``pytest tests/contract/test_migrations.py``), and never edit a revision
that was released.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

_HERE = Path(__file__).parent


def revisions() -> list[str]:
    """Return the numbers of all revisions, oldest first, without the cost of loading Alembic."""
    return sorted(file.name[:4] for file in (_HERE / "versions").glob("[0-9]*_*.py"))


def configuration(connection: Connection) -> Config:
    """Return what Alembic's commands need to work on `connection`, in its open transaction."""
    from alembic.config import Config  # noqa: PLC0415 - a fifth of a second most starts can spare

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    return config
