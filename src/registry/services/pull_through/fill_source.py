"""What is fetched, for whom, and from where."""

from __future__ import annotations

from typing import NamedTuple

from registry.oci.digest import Digest
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

    If not, the repository gets only what comes from its own upstream.
    """
