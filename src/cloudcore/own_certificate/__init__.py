"""The certificate for a server's own names: ordered by ACME, stored in files, renewed in time."""
