"""The public catalogues: regions and prices."""
