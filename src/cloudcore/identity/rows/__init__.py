"""Queries of identity, one module per aggregate; each runs in its caller's transaction."""
