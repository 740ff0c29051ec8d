"""Changes of identity with their rules, in the caller's transaction; for routes and commands."""
