"""Rows of tags: current ones (`pointers`), their `history`, and restorable `deleted` ones.

`prefix_index` reads the images whose tags begin with a prefix, or only the changes to them.
"""
