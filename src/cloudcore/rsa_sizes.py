"""Which RSA keys of strangers are read: arithmetic with their numbers holds the interpreter."""

from __future__ import annotations

from typing import Final

MOST_BITS: Final = 8192
MOST_EXPONENT_BITS: Final = 33
"""The largest public exponent that clients take; nearly all keys have 17 bits."""


def is_exponent(e: int) -> bool:
    """Return True if a public exponent is odd, above 1, and no longer than clients take."""
    return e > 1 and e % 2 == 1 and e.bit_length() <= MOST_EXPONENT_BITS


def is_light(modulus_bits: int, e: int) -> bool:
    """Return True if to verify a signature of such a public key takes less than a millisecond."""
    return modulus_bits <= MOST_BITS and is_exponent(e)
