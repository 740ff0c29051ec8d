"""Seal what is stored plain, while the registry serves it."""
