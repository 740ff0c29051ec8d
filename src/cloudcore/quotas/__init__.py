"""Quotas: how many resources accounts may have, by default or by limits that operators set.

- `quota`: the description of a quota by its family; cheap to import.
- `limits`: limits set by operators. Its `Counted` counts an account's use with a query, and raises
  `QuotaExceeded` in the transaction that would exceed the limit.
- `routes`: ``/v1/quotas``.
"""
