"""What the policy of a resource may say; each family states it for its kinds of resources."""

from __future__ import annotations

from typing import NamedTuple


class ResourceRules(NamedTuple):
    """The rules of the policies attached to one kind of resource."""

    noun: str
    """With its article, for messages: ``a bucket``."""
    actions: frozenset[str]
    """The only actions its policies may name."""
    public_actions: frozenset[str] = frozenset()
    """Those of `actions` that a policy may allow to everyone, signed in or not."""
