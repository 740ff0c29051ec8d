"""Purge what has expired: deleted tags, images and repositories, idle uploads."""
