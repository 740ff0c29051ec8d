"""The database of the platform: its interface, implemented for SQLite and PostgreSQL.

`base` is the interface: short functions, each in a transaction. `schema` and `tables` are what
tables are declared with, `statement`, `rows` and `calls` what queries are made of; `opening` opens
the database of a URL and imports its driver. Tables are in the rooms of their families.
"""
