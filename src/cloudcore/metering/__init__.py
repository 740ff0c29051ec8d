"""Metering: what accounts use, summed by hour.

A family describes each thing that it meters as a `sku`. It reports use in the transaction that
causes it (`usage`), counts it in memory (`needs.Meter`), or has it sampled each hour (`sampling`).
``GET /v1/usage`` shows the sums (`routes`), and billing reads them.
"""
