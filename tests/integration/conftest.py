"""The databases that the suites of this folder run over, and a world that some of them share."""

from tests.databases import (
    database_url,
    migrated_file,
    migrated_template,
    postgresql_database,
    sqlite_database,
)
from tests.integration.images_world import reader
from tests.postgresql import postgresql_url

__all__ = [
    "database_url",
    "migrated_file",
    "migrated_template",
    "postgresql_database",
    "postgresql_url",
    "reader",
    "sqlite_database",
]
