"""Queries of identity, one module for each aggregate; each runs in its caller's transaction."""
