"""Lifecycle policies: rules that expire images of a repository, previewed on demand, run daily."""
