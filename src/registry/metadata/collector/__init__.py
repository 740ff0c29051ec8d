"""Rows of the collector: unreferenced links and objects, recounts, generations of the database."""
