"""Database clusters and their backups."""
