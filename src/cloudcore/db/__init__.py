"""The database of the platform: its interface, implemented for SQLite and PostgreSQL.

`base` is the interface: short functions, each run in a transaction. Tables are declared with
`schema` and `tables`, queries are built with `statement` and `rows`; `opening` opens the database
of a URL and imports its driver. Each family's package contains its own tables.
"""
