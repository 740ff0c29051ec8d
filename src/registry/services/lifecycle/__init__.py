"""Lifecycle policies: rules that expire images of a repository, previewed on demand, run daily.

- `rules`: check and store a policy
- `scan`: read images
- `selection`: select images; a pure function
- `preview`, `runs`: apply a policy
"""
