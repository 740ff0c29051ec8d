"""Queries of identity, a module for each aggregate; each runs in its caller's transaction."""
