"""The audit log: who did what, when and from where.

`log` records in the transaction of a change, `rows` stores, `routes` shows owners their events.
"""
