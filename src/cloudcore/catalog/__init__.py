"""The public catalogues: which regions there are, and what things cost."""
