"""Rows of tags: where they point, their history, those that were deleted."""
