"""Point, list and delete tags."""
