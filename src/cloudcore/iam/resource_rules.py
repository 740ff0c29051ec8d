"""Rules for the policies of resources; each family declares them for its kinds of resources."""

from __future__ import annotations

from typing import NamedTuple


class ResourceRules(NamedTuple):
    """The rules for policies of one kind of resource."""

    noun: str
    """With its article, for messages: ``a bucket``."""
    actions: frozenset[str]
    """The actions its policies may name."""
    public_actions: frozenset[str] = frozenset()
    """Those of `actions` that a policy may allow to everyone, signed in or not."""
