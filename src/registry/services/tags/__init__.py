"""Use cases of tags.

- `pointers`: point, list and delete tags; only this checks immutability and preconditions
- `details`: tags for ``/v1``
- `prefix_index`: a cache of the images whose tags begin with a prefix
"""
