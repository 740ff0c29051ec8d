"""What was parsed of policies, kept as far as it fits into a budget of memory.

Tenants decide how many policies there are and what each takes: a list of networks takes sixty
times its text. So what is kept is counted by what it takes, not by its number.
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
"""Of one cache: some ten thousand policies as people write them."""

_POLICY_BYTES: Final = 2000
_STATEMENT_BYTES: Final = 1500
"""With its place in what is kept for each action."""
_STRING_BYTES: Final = 300
"""Of an action, a pattern taken apart or a principal, beside its characters."""
_CHARACTER_BYTES: Final = 2
_PIECE_BYTES: Final = 64
_NETWORK_BYTES: Final = 500


def memory_of(policy: Policy) -> int:
    """Return how many bytes a policy takes at most once it has been asked about all."""
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
    """What was last used, up to a capacity in bytes; for all threads."""

    def __init__(self, capacity: int = CAPACITY_BYTES) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()
        self.weight = 0
        """Bytes of what is kept, as they were told."""

    def get(self, key: K) -> V | None:
        """Return what is kept under a key."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, weight: int) -> None:
        """Keep a value of this many bytes, in place of what was used longest ago."""
        with self._lock:
            self._drop(self._kept.pop(key, None))
            self._kept[key] = (value, weight)
            self.weight += weight
            while self.weight > self._capacity:
                self._drop(self._kept.popitem(last=False)[1])

    def _drop(self, dropped: tuple[V, int] | None) -> None:
        self.weight -= 0 if dropped is None else dropped[1]
