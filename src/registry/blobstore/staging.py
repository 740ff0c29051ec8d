"""Parts of staging that all stores share: checks of ids and ranges, and running digests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from cloudcore.resource_names import is_canonical_uuid
from registry.blobstore.base import ObjectDamaged
from registry.errors import DigestMismatch, StoreUnavailable
from registry.oci.digest import Digest, Hasher, new_hasher

IDENTITY: Final = "sha256"


def canonical_id(name: str) -> str:
    """Return `name`, an object or upload id, after checking that it is safe in a path.

    Raise `ValueError` if it is not a lower-case UUID with dashes, which is a bug in the caller.
    """
    if not is_canonical_uuid(name):
        raise ValueError("an id of the blob store is a lower-case UUID")
    return name


def checked_range(start: int, stop: int | None, size: int) -> tuple[int, int]:
    """Return a range of an object of `size` bytes as (start, end); `stop` None is the end.

    Raise `ValueError` if the range is outside the object.
    """
    end = size if stop is None else stop
    if not 0 <= start <= end <= size:
        raise ValueError(f"the range {start} to {end} is not of an object of {size} bytes")
    return start, end


def check_size(actual: int, size: int | None) -> None:
    """Check that an object has `size` bytes; do nothing if `size` is None.

    Raise `ObjectDamaged` if it has another size.
    """
    if size is not None and actual != size:
        raise ObjectDamaged(f"it has {actual} bytes instead of {size}")


def wanted_algorithms(algorithm: str | None) -> set[str]:
    """Return the algorithms to compute: sha256, and `algorithm` if it is not None."""
    return {IDENTITY} if algorithm is None else {IDENTITY, algorithm}


def verified(digests: Mapping[str, str], expected: Digest | None) -> tuple[Digest, Digest | None]:
    """Check digests against `expected`; return the sha256, and `expected` if it is not sha256.

    `digests` map algorithms to hex. None for `expected` accepts any bytes.

    Raise `DigestMismatch` if the bytes do not hash to `expected`.
    """
    identity = Digest(f"{IDENTITY}:{digests[IDENTITY]}")
    if expected is None:
        return identity, None
    algorithm = expected.algorithm
    if f"{algorithm}:{digests[algorithm]}" != expected:
        raise DigestMismatch("the bytes do not hash to the digest given", digest=str(expected))
    return identity, (None if algorithm == IDENTITY else expected)


class State(Enum):
    """State of a writer's staged bytes; the value is the state's name in messages."""

    OPENED = "not rewound yet"
    HELD = "held"
    COMMITTED = "committed"
    CONDEMNED = "condemned"
    ENDED = "not held any more"


def check_held(state: State) -> None:
    """Raise `StoreUnavailable` for condemned bytes, `ValueError` for other bytes not held."""
    if state is State.CONDEMNED:
        raise StoreUnavailable("the blob store failed; what was written since is discarded")
    if state is not State.HELD:
        raise ValueError(f"the staged bytes are {state.value}")


class RunningDigests:
    """Digests of staged bytes, computed as the bytes arrive.

    `hashers` have hashed every staged byte. `known` are finished digests of the same bytes, which
    the next write drops.
    """

    def __init__(self, hashers: dict[str, Hasher], known: Mapping[str, str]) -> None:
        self.hashers = hashers
        self._known = dict(known)

    @classmethod
    def of_nothing(cls, algorithm: str | None) -> RunningDigests:
        """Begin with no bytes; hash with sha256, and with `algorithm` if it is not None."""
        return cls({name: new_hasher(name) for name in wanted_algorithms(algorithm)}, {})

    def update(self, view: memoryview) -> None:
        """Hash the next bytes."""
        self._known.clear()
        for hasher in self.hashers.values():
            hasher.update(view)

    def finished(self) -> dict[str, str]:
        """Map each known algorithm to the hex digest of all staged bytes."""
        return self._known | {name: each.hexdigest() for name, each in self.hashers.items()}

    def missing(self, algorithms: Iterable[str]) -> list[str]:
        """Return those of `algorithms` for which all bytes would have to be read again."""
        return [name for name in algorithms if name not in self.hashers | self._known]


_CAPACITY: Final = 1024

V = TypeVar("V")


class UploadCache(Generic[V]):
    """A bounded cache of upload states between requests, by upload id. Safe for threads."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, upload_id: str) -> V | None:
        """Return the state of an upload, or None if it is not cached."""
        with self._lock:
            return self._states.get(upload_id)

    def take(self, upload_id: str) -> V | None:
        """Remove and return the state of an upload, or return None if it is not cached."""
        with self._lock:
            return self._states.pop(upload_id, None)

    def put(self, upload_id: str, state: V) -> None:
        """Cache the state of an upload; evict the oldest if full."""
        with self._lock:
            self._states[upload_id] = state
            self._states.move_to_end(upload_id)
            while len(self._states) > _CAPACITY:
                self._states.popitem(last=False)


class HasherCache(UploadCache[dict[str, Hasher]]):
    """Cached hashers of uploads, from one request to the next."""

    def take_verified(self, upload_id: str, digests: Mapping[str, str]) -> dict[str, Hasher]:
        """Remove an upload's hashers; return those that match its acknowledged `digests`.

        The others are dropped: another process may have rewritten the upload since.
        """
        hashers = self.take(upload_id) or {}
        return {name: h for name, h in hashers.items() if digests.get(name) == h.hexdigest()}
