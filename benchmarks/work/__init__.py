"""Counts the work of each kind of request, where a measured time would depend on the machine."""
