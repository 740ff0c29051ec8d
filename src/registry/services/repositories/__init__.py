"""Use cases of repositories.

`names` finds and creates them for ``/v2``, `details` manages them for ``/v1``; `policies` are their
resource policies; `search` finds parts of names; `daily_usage` measures sizes and compares days.
"""
