"""The database of the platform: its interface, implemented for SQLite and PostgreSQL."""
