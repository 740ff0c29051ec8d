"""TLS: certificate files, encrypted sockets, and answers to ACME challenges.

`files` reads and reloads the certificate, `stream` and `transport` encrypt on a socket that bulk
threads may borrow, `validation` answers ACME challenges, `paths` is cheap to import.
"""
