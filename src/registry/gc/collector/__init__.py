"""The online collector: mark, sweep and removal, in batches of one transaction each."""
