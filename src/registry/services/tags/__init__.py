"""Use cases of tags: point, list and delete them (`pointers`), for ``/v1`` with their `details`.

Immutability and preconditions are checked only in `pointers`. `prefix_index` caches the images
whose tags begin with a prefix.
"""
