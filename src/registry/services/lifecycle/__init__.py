"""Lifecycle policies: rules that expire images of a repository, previewed on demand, run daily.

`rules` checks and stores a policy, `scan` reads images, `selection` is the pure function that
selects images, `preview` and `runs` apply it.
"""
