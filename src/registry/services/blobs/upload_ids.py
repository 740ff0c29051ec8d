"""Ids of upload sessions, which carry a session's state until it has a row.

An id is a UUIDv7: 48 bits of time (milliseconds), 34 random bits, and 40 bits of a MAC over these,
the repository and the hash algorithm (HMAC-SHA-256, truncated). So ``POST`` writes no row, and
every process of the registry recognizes the session, as all have the same key.

The MAC only distinguishes issued ids from others. It protects no right: every request is authorized
for its repository, and anyone who may push there can get an id. So 40 bits are enough, and ids can
be UUIDs, which clients expect in ``Docker-Upload-UUID``.
"""

from __future__ import annotations

import hmac
import os
import uuid
from typing import Final, NamedTuple

from cloudcore.quotas.limits import QuotaUse
from registry.errors import UploadBusy, UploadUnknown
from registry.metadata.blobs.uploads import Upload
from registry.oci.digest import ALGORITHMS

CONTEXT: Final = "ids of upload sessions"
"""The context from which `cloudcore.keyring.Keyring.derive` derives the key of the MAC. The key
does not change at a restart."""
_MAC_BITS: Final = 40
_RANDOM_BITS: Final = 34
_LOW_BITS: Final = 62 - _MAC_BITS  # of the random ones, those after the variant
_OPEN_KEY: Final = bytes(32)


class UploadSession(NamedTuple):
    """An open upload session."""

    upload: Upload
    is_written: bool
    """True if the session has a row. Otherwise it has received nothing yet."""
    use: QuotaUse | None = None
    """Stored bytes of the session's account and their limit; None without a limit, or if not read.
    """


def new_upload(upload_id: str, ids: RepositoryIds, algorithm: str | None) -> Upload:
    """Return a session that has no row yet, and has received nothing."""
    return Upload(
        id=upload_id,
        repository_id=ids.repository_id,
        account_id=ids.account_id,
        algorithm=algorithm,
        received_bytes=0,
        digests={},
        stage_id=upload_id,
        stage_shared=False,
        lease_holder=None,
        lease_token=0,
        leased_until=None,
    )


def unknown(upload_id: str) -> UploadUnknown:
    """Return the error for a session that does not exist or has ended."""
    return UploadUnknown("there is no such upload here, or it has ended", upload=upload_id)


def busy() -> UploadBusy:
    """Return the error for a session that another request writes to."""
    return UploadBusy("another request is writing to this upload; try again")


class RepositoryIds(NamedTuple):
    """The ids of a session's repository and account."""

    repository_id: str
    account_id: str


class ParsedId(NamedTuple):
    """The data in an upload id."""

    algorithm: str | None
    """The hash algorithm that the client announced, or None."""
    started_at: int
    """When the session was started, in microseconds since the epoch."""


class UploadIds:
    """Makes and recognizes the upload ids of a registry."""

    def __init__(self, key: bytes = _OPEN_KEY) -> None:
        """Sign with `key`; the default is public, for ``entrepot dev`` without keys."""
        self._key = key

    def new(self, ids: RepositoryIds, algorithm: str | None, now: int) -> str:
        """Return the id of a session that starts at `now`, in microseconds since the epoch."""
        random = int.from_bytes(os.urandom(5), "big") >> (40 - _RANDOM_BITS)
        time = now // 1000 & ((1 << 48) - 1)
        value = time << 80 | 0x7 << 76 | (random >> _LOW_BITS) << 64
        value |= 0b10 << 62 | (random & ((1 << _LOW_BITS) - 1)) << _MAC_BITS
        return str(uuid.UUID(int=value | self._mac(value, ids, algorithm)))

    def read(self, upload_id: str, ids: RepositoryIds) -> ParsedId | None:
        """Parse an id; return None if `new` did not make it for this repository."""
        number = _number(upload_id)
        mac = number & ((1 << _MAC_BITS) - 1)
        for algorithm in (None, *ALGORITHMS):
            if self._mac(number - mac, ids, algorithm) == mac:
                return ParsedId(algorithm, started_at(upload_id))
        return None

    def _mac(self, value: int, ids: RepositoryIds, algorithm: str | None) -> int:
        parts = value.to_bytes(16, "big"), *(text.encode() for text in (*ids, algorithm or ""))
        made = hmac.digest(self._key, b"\0".join(parts), "sha256")
        return int.from_bytes(made[: _MAC_BITS // 8], "big")


def lowest_id(moment: int) -> str:
    """Return an id below the ids of all sessions started at or after a time (microseconds)."""
    return str(uuid.UUID(int=moment // 1000 << 80))


def started_at(upload_id: str) -> int:
    """Return when a session was started, in microseconds since the epoch (UUIDv7)."""
    return (_number(upload_id) >> 80) * 1000


def _number(upload_id: str) -> int:
    return int(upload_id.replace("-", ""), 16)
