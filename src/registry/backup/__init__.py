"""Back up a registry beside its server, and restore it into an empty folder."""
