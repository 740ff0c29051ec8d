"""Certificates of an authority that speaks ACME (RFC 8555).

`session` and `network` import the library of ACME, and run in a child process only.
"""
