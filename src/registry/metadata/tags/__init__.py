"""Rows of tags.

- `pointers`: current tags
- `history`: changes of tags
- `deleted`: restorable deleted tags
- `prefix_index`: the images whose tags begin with a prefix, or only the changes to them
"""
