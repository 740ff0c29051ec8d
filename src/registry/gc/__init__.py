"""The collector, the orphan scan, the purge of what was deleted, and fsck."""
