"""Other registries, asked as a client: what the pull-through cache fetches comes from here."""
