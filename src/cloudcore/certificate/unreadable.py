"""What a stranger's certificate or signing request raises, whatever part of it is looked at."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

UNREADABLE: Final = (
    ValueError,
    TypeError,  # a name with a bit string
    KeyError,  # a TLS feature (RFC 7633) that the library does not know
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Parts are read only when they are looked at, so each look can raise any of these."""
