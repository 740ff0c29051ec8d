"""Find repositories and tags of an account by a part of their names.

There is no index of substrings that both databases have, so a search reads names in order. It reads
a bounded number for each request, tells how many, and where the next request continues.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.repositories.names import RepositoryName, list_first_tags, list_names

MAX_REPOSITORIES: Final = 500
MAX_TAGS: Final = 20_000
"""The most names that one request reads."""
MAX_FOUND: Final = 100
"""The most repositories, and the most tags, that one request returns."""


class FoundTag(NamedTuple):
    """A tag whose name contains the text."""

    repository: RepositoryName
    name: str


class Findings(NamedTuple):
    """The outcome of one request."""

    repositories: list[RepositoryName]
    tags: list[FoundTag]
    searched_repositories: int
    searched_tags: int
    skipped_tags: int
    """Tags of these repositories that were not read: one has too many, or enough were found."""
    continue_after: str | None
    """Name of the last repository that was searched; None if it was the account's last."""


def search_names(tx: Connection, account_id: str, text: str, after: str) -> Findings:
    """Search the repositories after the name `after`, and their tags, regardless of case."""
    wanted = text.lower()
    listed = list_names(tx, account_id, after, MAX_REPOSITORIES + 1)
    repositories: list[RepositoryName] = []
    tags: list[FoundTag] = []
    searched = read = skipped = 0
    for repository in listed[:MAX_REPOSITORIES]:
        left = MAX_TAGS - read
        is_full = len(repositories) >= MAX_FOUND or len(tags) >= MAX_FOUND
        if searched and (is_full or repository.tag_count > left):
            break
        searched += 1
        if wanted in repository.name:
            repositories.append(repository)
        names = list_first_tags(tx, repository.id, left) if repository.tag_count else []
        found = [FoundTag(repository, name) for name in names if wanted in name.lower()]
        room = MAX_FOUND - len(tags)
        tags += found[:room]
        read += len(names)
        skipped += max(0, repository.tag_count - len(names)) + max(0, len(found) - room)
    is_last = searched == len(listed)
    continue_after = None if is_last else listed[searched - 1].name
    return Findings(repositories, tags, searched, read, skipped, continue_after)
