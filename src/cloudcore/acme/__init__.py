"""Order and revoke certificates at an authority that speaks ACME (RFC 8555).

`client` starts `session` in a child process; only `session` imports the ACME library.
"""
