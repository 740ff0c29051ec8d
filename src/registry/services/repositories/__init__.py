"""Use cases of repositories: found by name, managed by their account."""
