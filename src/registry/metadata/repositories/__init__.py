"""Rows of repositories, live and deleted.

`repository` finds and lists them for ``/v2``, `details` with all settings for ``/v1``, `deleted`
restores and purges. `folders` counts them by prefix, `search_index` finds parts of names,
`daily_usage` and `stale` are their measured history, `policies` their resource policies.
"""
