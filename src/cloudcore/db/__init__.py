"""The database of the platform: the seam, and its two implementations."""
