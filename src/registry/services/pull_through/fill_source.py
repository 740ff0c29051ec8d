"""What is fetched, for whom, and from where."""

from __future__ import annotations

from typing import NamedTuple

from registry.oci.digest import Digest, digest_of
from registry.oci.reference import Name
from registry.upstream.base import Remote


class Source(NamedTuple):
    """A blob that a repository of an upstream has, and the cached repository that it is for."""

    name: Name
    repository_id: str
    account_id: str
    digest: Digest
    remote: Remote
    size: int | None = None
    """As a cached manifest says; None if none refers to it."""
    is_known: bool = False
    """True if the upstream is known to have it, by a manifest or since it was asked.

    If not, the repository gets only what is fetched for itself.
    """

    @property
    def key(self) -> str:
        """Return the key of its fill."""
        return fill_key(self.remote.rule_id, self.remote.origin, self.digest)


def fill_key(rule_id: str, origin: str, digest: Digest) -> str:
    """Return the key under which the repositories of a rule share the fill of a blob.

    Another rule has another one, and so has the same rule with another upstream: what one upstream
    sends, the other may not have.
    """
    return digest_of(f"{rule_id} {origin} {digest}".encode())
