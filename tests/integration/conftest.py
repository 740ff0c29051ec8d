"""The databases that the suites of this folder run over."""

from tests.databases import (
    database_url,
    migrated_file,
    migrated_template,
    postgresql_database,
    sqlite_database,
)
from tests.postgresql import postgresql_url

__all__ = [
    "database_url",
    "migrated_file",
    "migrated_template",
    "postgresql_database",
    "postgresql_url",
    "sqlite_database",
]
