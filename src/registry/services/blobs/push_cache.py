"""A cache of the repositories and KMS keys of recent pushes, which saves small pushes a look-up.

The transaction that writes a push's rows verifies that both are unchanged
(`registry.metadata.blobs.new_blobs`). If they have changed, it writes nothing, and the push looks
them up.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from cloudcore.kms.vault import UsableKeys
from registry.metadata.blobs.new_blobs import PushTarget
from registry.metadata.repositories.repository import Repository
from registry.oci.reference import Name
from registry.services.blobs.writing_keys import WritingKey

MOST_TARGETS: Final = 1000
"""The maximum number of cached targets of a process; the oldest is removed first."""


class CachedTarget(NamedTuple):
    """A push target, and its KMS key ready for use. The key is None if new blobs are plain."""

    target: PushTarget
    writing: WritingKey | None


class PushCache:
    """The push targets of one process, by repository name."""

    def __init__(self) -> None:
        self._known: OrderedDict[Name, CachedTarget] = OrderedDict()

    def keep(self, name: Name, repository: Repository, writing: WritingKey | None) -> None:
        """Cache a target that was just found to accept pushes.

        A repository left by a deleted pull-through rule is not cached: the check in the transaction
        refuses it, so each push would be tried twice.
        """
        if repository.is_cached:
            return
        key_id, version, kept = None, 0, None
        if writing is not None:
            (ref,) = writing.usable.refs
            key_id, version = writing.kms_key_id, ref.version
            kept = writing._replace(usable=UsableKeys([ref], {ref: None}))
        at = PushTarget(repository.id, repository.account_id, *name, key_id, version)
        self._known[name] = CachedTarget(at, kept)
        if len(self._known) > MOST_TARGETS:
            self._known.popitem(last=False)

    def find(self, name: Name) -> CachedTarget | None:
        """Return the cached target of a repository, or None; its KMS key may need opening again."""
        return self._known.get(name)

    def forget(self, name: Name) -> None:
        """Remove a target that has changed."""
        self._known.pop(name, None)
