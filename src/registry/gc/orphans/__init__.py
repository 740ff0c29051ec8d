"""Stored bytes without a row: found by a scan, kept in quarantine for days."""
