"""The database of the platform: its interface, implemented for SQLite and PostgreSQL.

`base` is the interface: short functions, each in a transaction. Tables are declared with `schema`
and `tables`, and queries are made with `statement` and `rows`; `opening` opens the database of a
URL and imports its driver. Tables are in the rooms of their families.
"""
