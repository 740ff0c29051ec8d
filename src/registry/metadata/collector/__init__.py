"""Rows the collector works on: what nobody needs, its runs, generations of the data."""
