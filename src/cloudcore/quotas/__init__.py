"""Quotas: how much accounts may have of each thing, and what an operator has set instead.

A family describes a `quota`, which is cheap to import, and counts what an account has by a query
(`limits.Counted`), which refuses more than the limit in the transaction that adds it. `routes` is
``/v1/quotas``.
"""
