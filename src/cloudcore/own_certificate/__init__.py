"""The certificate of a server's own names: ordered by ACME, kept in a folder, renewed in time."""
