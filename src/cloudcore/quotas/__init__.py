"""Quotas: how much accounts may have of each thing, and the limits that operators set instead.

A family describes a `quota`, which is cheap to import, and counts what an account has with a query
(`limits.Counted`), which refuses anything beyond the limit in the transaction that adds it.
`routes` is ``/v1/quotas``.
"""
