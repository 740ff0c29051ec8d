"""Machines: which of them works on what is more than rows, and what runs there once."""
