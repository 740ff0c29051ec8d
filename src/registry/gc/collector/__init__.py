"""The online collector: mark, sweep, removal, each step one transaction."""
