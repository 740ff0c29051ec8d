"""Processes of a server: bind and serve, fork workers, restart them, drain on SIGTERM."""
