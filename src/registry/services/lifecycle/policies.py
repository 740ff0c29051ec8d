"""Store, read and delete the lifecycle policy of a repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.revisions import require_revision
from registry.metadata.lifecycle import policies as lifecycle
from registry.metadata.lifecycle.policies import StoredLifecyclePolicy
from registry.services.lifecycle.rules import DAY, LifecycleRule, check_rules
from registry.services.repositories.locks import lock_existing_repository

RUN_EVERY: Final = DAY


def put_policy(
    tx: Connection,
    repository_id: str,
    rules: Sequence[LifecycleRule],
    now: int,
    revision: int | None = None,
) -> StoredLifecyclePolicy:
    """Set or replace a repository's policy, if it has this `revision`.

    The first run starts a day later, so that there is time for a preview. Replacing a policy keeps
    its schedule, and stops a run of the old one.

    Raises:
        InvalidInput: with ``field`` and ``reason``.
        Conflict: it has another revision.
        NotFound: there is no such repository.

    """
    document = check_rules(rules)
    lock_existing_repository(tx, repository_id)
    if revision is not None:
        stored = lifecycle.find_policy(tx, repository_id)
        require_revision(stored.revision if stored else 0, revision)
    return lifecycle.store_policy(tx, repository_id, document, now, now + RUN_EVERY)


def get_policy(tx: Connection, repository_id: str) -> StoredLifecyclePolicy:
    """Return a repository's policy, or raise `NotFound`."""
    stored = lifecycle.find_policy(tx, repository_id)
    if stored is None:
        raise no_policy()
    return stored


def delete_policy(tx: Connection, repository_id: str) -> None:
    """Delete a repository's policy; a run of it stops.

    Raises:
        NotFound: it has none, or was deleted meanwhile.

    """
    lock_existing_repository(tx, repository_id)
    if not lifecycle.remove_policy(tx, repository_id):
        raise no_policy()


def no_policy() -> NotFound:
    """Return the error for a repository without a policy."""
    return NotFound("the repository has no lifecycle policy")
