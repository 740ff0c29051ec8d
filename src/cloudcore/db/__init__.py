"""The database of the platform: its interface, implemented for SQLite and PostgreSQL.

`base` is the interface: short functions, each in a transaction. `statement`, `schema`, `rows` and
`calls` are what queries are made of; `opening` opens the database of a URL and imports its driver.
Tables are in the rooms of their families.
"""
