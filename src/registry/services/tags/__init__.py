"""Use cases of tags: pointed, listed, deleted."""
