"""The certificate for a server's own host names: ordered by ACME, stored in files, and renewed."""
