"""Certificates of TLS: made by an authority of this install, or uploaded."""
