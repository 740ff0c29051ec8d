"""The metadata of the registry in SQLite or PostgreSQL: tables, migrations, and all SQL, by noun.

Tables are in `tables`, `control_tables`, `search_tables`, `event_rules` and `pull_through/tables`;
the fields of rules are in `event_rule` and `pull_through/cache_rule`. A query is a `Statement` at
the top of its module, and a function that takes the transaction. Packages: `blobs`, `images`,
`tags`, `repositories`, `pull_through`, and `collector` for background work.

SQLAlchemy is imported here and in families, nowhere else in the registry. Rights, events and the
store belong to `registry.services`.
"""
