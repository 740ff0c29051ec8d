"""The metadata of the registry in SQLite or PostgreSQL: tables, migrations and all SQL.

Each module is about one noun. Its queries are `Statement`s at the top, run by functions that take
the transaction. Packages: `blobs`, `images`, `tags`, `repositories`, `pull_through`, and
`collector` for background work. Tables are in `tables`, `control_tables`, `search_tables`,
`event_rules` and `pull_through/tables`; the fields of rules in `event_rule` and
`pull_through/cache_rule`.

In the registry, only this package imports SQLAlchemy. Rights, events and the blob store belong to
`registry.services`.
"""
