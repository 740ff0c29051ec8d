"""TLS: certificate files, sockets, and proofs for an authority.

`files` reads and reloads the certificate, `stream` and `transport` encrypt on a socket that bulk
threads may borrow, `validation` answers ACME challenges, `paths` is cheap to import.
"""
