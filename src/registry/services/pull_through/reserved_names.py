"""Names that only the cache fills: those under the prefix of a rule."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from registry.errors import RepositoryMirrored
from registry.metadata.pull_through.rules import prefix_over

CACHED: Final = "pull_through_cache"
"""The source of repositories that the cache fills."""


def check_unmirrored(tx: Connection, account_id: str, repository: str) -> None:
    """Check that a repository that the transaction has inserted may be there.

    It is checked after the insertion, whose foreign key waits for a rule that is being created.

    Raises:
        RepositoryMirrored: a rule has its name.

    """
    prefix = prefix_over(tx, account_id, repository)
    if prefix is not None:
        raise mirrored(repository, prefix)


def mirrored(repository: str, prefix: str) -> RepositoryMirrored:
    """Return the error for a push to a name under the prefix of a rule."""
    return RepositoryMirrored(
        f"{repository} is under {prefix}/, which the pull-through cache fills from an upstream;"
        " nothing else can be stored there",
        prefix=prefix,
    )
