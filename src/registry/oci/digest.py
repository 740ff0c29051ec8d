"""Digests: the type, its grammar, and the hashers of the supported algorithms."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final, Protocol

from blake3 import blake3

from registry.errors import DigestInvalid

ALGORITHMS: Final = ("sha256", "sha512", "blake3")
"""The supported algorithms; content is stored under its sha256."""

_GRAMMAR: Final = re.compile(r"(?:sha256|blake3):[a-f0-9]{64}|sha512:[a-f0-9]{128}")
_ANY_ALGORITHM: Final = re.compile(
    r"([a-z0-9]+(?:[+._-][a-z0-9]+)*):[a-zA-Z0-9=_-]+"  # image-spec, "Digests"
)
MAX_LENGTH: Final = len("sha512:") + 128


class Hasher(Protocol):
    """The methods of `hashlib` objects that the registry uses."""

    def update(self, data: memoryview | bytes, /) -> object:
        """Add more bytes."""

    def hexdigest(self) -> str:
        """Return the digest of the bytes so far in lower-case hex."""


class Digest(str):
    """A valid digest in canonical form, ``<algorithm>:<lower-case hex>``. Make one with `parse`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Parse a digest.

        Raise `DigestInvalid` if the algorithm is not supported, or the hex has the wrong length or
        case.
        """
        if len(text) > MAX_LENGTH or not _GRAMMAR.fullmatch(text):
            shown = text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH] + "…"
            raise DigestInvalid(
                "a digest is sha256:<64 hex>, sha512:<128 hex> or blake3:<64 hex>, in lower case",
                digest=shown,
            )
        return cls(text)

    @property
    def algorithm(self) -> str:
        """Return the part before the colon."""
        return self[: self.index(":")]


_HASHERS: Final[dict[str, Callable[..., Hasher]]] = {
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
    "blake3": blake3,
}


def check_foreign_digest(text: str) -> None:
    """Check the digest of content that is not stored here, which may be of any algorithm.

    Raise `DigestInvalid` if it does not have the form of a digest (image-spec, "Digests"), is
    longer than `MAX_LENGTH`, or has a known algorithm but not that algorithm's length.
    """
    found = _ANY_ALGORITHM.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None or found[1] in ALGORITHMS:
        Digest.parse(text)


def new_hasher(algorithm: str) -> Hasher:
    """Return a hasher for one of `ALGORITHMS`."""
    return _HASHERS[algorithm]()


def digest_of(data: bytes, algorithm: str = "sha256") -> Digest:
    """Return the digest of `data`."""
    return Digest(f"{algorithm}:{_HASHERS[algorithm](data).hexdigest()}")


def parse_algorithm(text: str) -> str:
    """Check the value of ``digest-algorithm`` (end-4c) and return it, or raise DigestInvalid."""
    if text not in ALGORITHMS:
        raise DigestInvalid("digest-algorithm is sha256, sha512 or blake3", algorithm=text[:64])
    return text
