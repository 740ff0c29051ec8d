"""Wraps: the data key of stored bytes, encrypted under a KMS key; move it to another key.

One data key seals one sequence of stored bytes. A wrap of it is bound to their stored id, so it
opens nothing else. To let another KMS key open the bytes, none of them is read. Families turn the
errors here into their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple, Protocol, TypeVar

from cloudcore.errors import AccessDenied, NotFound


class KeyDeleted(NotFound):
    """The KMS key was deleted, or there is none."""

    def __init__(self, message: str = "the KMS key was deleted") -> None:
        super().__init__(message, reason="kms_key_not_found")


class KeyDisabled(AccessDenied):
    """The KMS key is disabled, or its deletion is pending."""

    def __init__(
        self, message: str = "the KMS key is disabled, or its deletion is pending"
    ) -> None:
        super().__init__(message, reason="kms_key_disabled")


class WrapBroken(Exception):
    """A wrapped data key does not open: its row was changed. Clients never see this error."""


CLOSED: Final = (KeyDeleted, KeyDisabled)
"""Why a KMS key cannot be used."""
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
    """Wraps and opens data keys; both raise.

    KeyDeleted, KeyDisabled: of a KMS key.
    Unavailable: the provider of its material is not there.
    """

    async def open_all(self, account_id: str, wraps: Sequence[WrappedKey], /) -> list[K]:
        """Return the data keys of these wraps; raise `WrapBroken` if one does not open."""

    async def wrap_all(
        self, account_id: str, kms_key_id: str, data_keys: Sequence[tuple[str, K]], /
    ) -> list[bytes]:
        """Wrap data keys, each given with its stored id, under one KMS key."""


class Rewrapped(NamedTuple):
    """Data keys in their new wraps, and the reasons for those without one; both by stored id."""

    wraps: dict[str, bytes]
    kept: dict[str, str]
    """`key_disabled`, `key_deleted` or `unreadable`."""


async def rewrap(
    keys: DataKeys[K], account_id: str, kms_key_id: str, wraps: Sequence[Sequence[WrappedKey]]
) -> Rewrapped:
    """Wrap data keys under a KMS key, each opened by the first of its wraps that does.

    Raises:
        KeyDeleted, KeyDisabled: of the KMS key to wrap under.
        Unavailable: the provider of a key's material is not there.

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
    """Open all at once; if that fails, those of each KMS key; if one is broken, each by itself."""
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
