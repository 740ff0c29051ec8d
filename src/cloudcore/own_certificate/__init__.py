"""The certificate of a server's own names: ordered, kept in a folder, and renewed in time."""
