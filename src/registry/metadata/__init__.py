"""The metadata database (SQLite or PostgreSQL): tables, migrations, and queries by aggregate."""
