"""Push, read, delete, restore and pin images."""
