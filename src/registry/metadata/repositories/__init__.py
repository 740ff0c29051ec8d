"""Rows of repositories, live and deleted.

- `repository`: find, insert, lock and list them for ``/v2``
- `details`: list and change them, with all settings, for ``/v1``
- `deleted`: restore and purge deleted ones
- `folders`: their numbers by prefix of the name
- `search_index`: find parts of names
- `daily_usage`, `stale`: measured history
- `policies`: resource policies
"""
