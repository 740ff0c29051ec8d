"""Rows of repositories, live and deleted.

`repository` finds and lists them for ``/v2``; `details` does for ``/v1``, with all settings;
`deleted` restores and purges them. `folders` counts them by prefix, `search_index` finds parts of
names, `daily_usage` and `stale` have their measured history, `policies` their resource policies.
"""
