"""Changes of identity's rows and their rules, in the caller's transaction."""
