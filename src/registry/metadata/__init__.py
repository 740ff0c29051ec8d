"""What the registry knows: tables, the two databases that hold them, and queries by aggregate."""
