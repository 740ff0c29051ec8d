"""Wraps: data keys of stored bytes, encrypted under KMS keys; and moving them to other KMS keys.

One data key seals one sequence of stored bytes. A wrap is bound to the stored id of these bytes, so
it opens no others. To let another KMS key open the bytes, only the data key is wrapped again.
Families convert the errors here to their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple, Protocol, TypeVar

from cloudcore.errors import AccessDenied, NotFound


class KeyDeleted(NotFound):
    """The KMS key was deleted, or does not exist."""

    def __init__(self, message: str = "the KMS key was deleted") -> None:
        super().__init__(message, reason="kms_key_not_found")


class KeyDisabled(AccessDenied):
    """The KMS key is disabled, or its deletion is pending."""

    def __init__(
        self, message: str = "the KMS key is disabled, or its deletion is pending"
    ) -> None:
        super().__init__(message, reason="kms_key_disabled")


class WrapBroken(Exception):
    """A wrapped data key cannot be opened: its row was changed. Clients never see this error."""


CLOSED: Final = (KeyDeleted, KeyDisabled)
"""The errors for KMS keys that cannot be used."""
_REASONS: Final[dict[type[Exception], str]] = {
    KeyDeleted: "key_deleted",
    KeyDisabled: "key_disabled",
    WrapBroken: "unreadable",
}
K = TypeVar("K")


class WrappedKey(NamedTuple):
    """The data key of stored bytes, wrapped under a KMS key."""

    kms_key_id: str
    wrapped: bytes
    stored_id: str


class DataKeys(Protocol[K]):
    """Wraps and opens data keys.

    Both methods raise `KeyDeleted` or `KeyDisabled` if the KMS key cannot be used, and
    `Unavailable` if the provider of the KMS key cannot be reached.
    """

    async def open_all(self, account_id: str, wraps: Sequence[WrappedKey], /) -> list[K]:
        """Return the data keys in these wraps; raise `WrapBroken` if one cannot be opened."""

    async def wrap_all(
        self, account_id: str, kms_key_id: str, data_keys: Sequence[tuple[str, K]], /
    ) -> list[bytes]:
        """Return the wraps of (stored id, data key) pairs under one KMS key, in the same order."""


class Rewrapped(NamedTuple):
    """New wraps, and the reasons why other bytes have none; both by stored id."""

    wraps: dict[str, bytes]
    kept: dict[str, str]
    """Reasons: `key_disabled`, `key_deleted` or `unreadable`."""


async def rewrap(
    keys: DataKeys[K], account_id: str, kms_key_id: str, wraps: Sequence[Sequence[WrappedKey]]
) -> Rewrapped:
    """Wrap data keys under a KMS key; `wraps` has the wraps of each, the preferred one first.

    Each data key is opened with the first of its wraps that can be opened.

    Raises:
        KeyDeleted, KeyDisabled: the KMS key to wrap under cannot be used.
        Unavailable: the provider of a KMS key cannot be reached.

    """
    opened: dict[str, K] = {}
    kept: dict[str, str] = {}
    left = [each for each in wraps if each]
    while left:
        await _open(keys, account_id, [each[0] for each in left], opened, kept)
        left = [each[1:] for each in left if each[1:] and each[0].stored_id not in opened]
    made = await keys.wrap_all(account_id, kms_key_id, list(opened.items()))
    closed = {stored_id: why for stored_id, why in kept.items() if stored_id not in opened}
    return Rewrapped(dict(zip(opened, made, strict=True)), closed)


async def _open(
    keys: DataKeys[K],
    account_id: str,
    wraps: Sequence[WrappedKey],
    opened: dict[str, K],
    kept: dict[str, str],
) -> None:
    """Open wraps, and add each data key to `opened`, or the reason why it stays closed to `kept`.

    Open all at once; if that fails, separately for each KMS key, and then one by one.
    """
    try:
        found = await keys.open_all(account_id, wraps)
    except (*CLOSED, WrapBroken) as error:
        by_key = [list(group) for _, group in groupby(sorted(wraps), lambda wrap: wrap.kms_key_id)]
        if len(by_key) == 1 and isinstance(error, WrapBroken):
            by_key = [[wrap] for wrap in wraps]
        if len(by_key) == 1:
            why = next(name for kind, name in _REASONS.items() if isinstance(error, kind))
            kept |= dict.fromkeys((wrap.stored_id for wrap in wraps), why)
            return
        for group in by_key:
            await _open(keys, account_id, group, opened, kept)
    else:
        opened |= zip((wrap.stored_id for wrap in wraps), found, strict=True)
