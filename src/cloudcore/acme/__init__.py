"""Certificates of an authority that speaks ACME (RFC 8555).

`session`, `network` and `failures` import the library of ACME, and run in a child process only.
"""
