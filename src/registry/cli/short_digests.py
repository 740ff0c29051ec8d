"""Digests cut to 12 hex digits, as docker shows them, and texts that may be such a cut."""

from __future__ import annotations

import re
from typing import Final

_DIGEST: Final = re.compile(r"\b(sha256|sha512|blake3):([0-9a-f]{12})[0-9a-f]{52,116}\b")
_SHORT: Final = re.compile(r"(?:sha256:)?[0-9a-f]{6,63}")


def shorten_digests(text: str) -> str:
    """Cut every digest in a text to 12 hex digits; only ``sha256:`` is left out."""
    return _DIGEST.sub(lambda found: _shortened(found[1], found[2]), text)


def is_short_digest(text: str) -> bool:
    """Return True if a text may be the beginning of a sha256, which a tag may look like too."""
    return _SHORT.fullmatch(text) is not None


def _shortened(algorithm: str, digits: str) -> str:
    return digits if algorithm == "sha256" else f"{algorithm}:{digits}"
