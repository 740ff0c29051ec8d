"""Rows of repositories, live and deleted.

`live` finds and lists them for ``/v2``, `details` with all settings for ``/v1``, `deleted` restores
and purges. `folders` counts them by prefix of their names, `search_index` finds parts of names,
`days` and `stale` are their measured history, `policies` their resource policies.
"""
