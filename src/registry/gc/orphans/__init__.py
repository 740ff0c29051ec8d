"""Orphans, stored bytes without a row: find them, and keep them in quarantine for days."""
