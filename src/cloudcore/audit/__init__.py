"""The audit log: who did what, when and from where.

- `log`: records events in the transaction of the change, and counts refusals.
- `rows`: stores and finds events.
- `routes`: shows owners their events.
"""
