"""The audit log: who did what, when and from where.

`log` records events in the transaction of the change, `rows` stores them, `routes` shows owners
their own.
"""
