"""A cache of parsed policies within a budget of memory.

Tenants decide how many policies there are and how much memory each takes: a list of networks takes
sixty times its text. So the cache is bounded by bytes, not by the number of entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

from cloudcore.iam.policy import Policy, PolicyStatement

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

CAPACITY_BYTES: Final = 64 * 1024 * 1024
"""Capacity of a cache: some ten thousand typical policies."""

_POLICY_BYTES: Final = 2000
_STATEMENT_BYTES: Final = 1500
"""Bytes of a statement, with its place in the index by action."""
_STRING_BYTES: Final = 300
"""Bytes of an action, parsed pattern or principal, besides its characters."""
_CHARACTER_BYTES: Final = 2
_PIECE_BYTES: Final = 64
_NETWORK_BYTES: Final = 500


def memory_of(policy: Policy) -> int:
    """Return the maximum bytes of a policy once its index by action is complete."""
    return _POLICY_BYTES + sum(map(_memory_of, policy.statements))


def _memory_of(statement: PolicyStatement) -> int:
    texts = (*statement.actions.texts, *statement.resources.texts, *statement.principals)
    conditions = statement.conditions
    return (
        _STATEMENT_BYTES
        + sum(
            _STRING_BYTES + _CHARACTER_BYTES * len(text) + _PIECE_BYTES * text.count("*")
            for text in texts
        )
        + _NETWORK_BYTES * (len(conditions.ip_address) + len(conditions.not_ip_address))
    )


class WeighedCache(Generic[K, V]):
    """A thread-safe LRU cache with a capacity in bytes."""

    def __init__(self, capacity: int = CAPACITY_BYTES) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()
        self.weight = 0
        """Sum of the weights of all entries, in bytes."""

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, weight: int) -> None:
        """Insert a value of `weight` bytes, evicting the least recently used ones."""
        with self._lock:
            self._drop(self._kept.pop(key, None))
            self._kept[key] = (value, weight)
            self.weight += weight
            while self.weight > self._capacity:
                self._drop(self._kept.popitem(last=False)[1])

    def _drop(self, dropped: tuple[V, int] | None) -> None:
        self.weight -= 0 if dropped is None else dropped[1]
