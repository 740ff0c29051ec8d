"""The types of keys for a push: KMS keys, data keys and their wraps; `sealing` finds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cloudcore.kms.vault import UsableKeys
from registry.blobstore.base import DataKey


class WritingKey(NamedTuple):
    """The KMS key that a repository writes under, ready for use."""

    kms_key_id: str
    usable: UsableKeys


@dataclass(frozen=True, slots=True)
class Seal:
    """The data key of staged or stored bytes, and its wrap."""

    kms_key_id: str
    data_key: DataKey
    wrapped: bytes = field(repr=False)
    """The data key, wrapped under the KMS key; the wrap is bound to the id of the bytes."""


class UploadKeys(NamedTuple):
    """The KMS keys that a request to an upload session needs."""

    writing: WritingKey | None
    """The KMS key for further bytes; None if bytes are stored plain."""
    received: UsableKeys | None
    """The KMS key that opens the data key of the received bytes. None if these are plain, if the
    wrap is broken, or if the data key is not to be opened."""
