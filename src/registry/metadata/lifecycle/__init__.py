"""Rows of lifecycle policies, their runs, and the images they judge."""
