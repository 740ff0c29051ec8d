"""Metering: what accounts use, summed by hour.

A family describes each kind of use that it meters as a `sku`. There are three ways to meter it:

- `usage`: report the use in the transaction that causes it.
- `needs.Meter`: count the use in memory.
- `sampling`: measure stored amounts for each hour.

``GET /v1/usage`` (`routes`) shows the sums, and billing reads them.
"""
