"""Use cases of repositories.

- `names`: find and create them for ``/v2``
- `details`: manage them for ``/v1``
- `policies`: their resource policies
- `search`: find parts of names
- `daily_usage`: measure sizes and compare days
"""
