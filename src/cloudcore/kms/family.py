"""The KMS family: rotated keys of accounts, which encrypt short values and data keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.kms.key import KEY, STORED_KEYS
from cloudcore.metering.sku import Sku

if TYPE_CHECKING:
    from cloudcore.kms.needs import KmsNeeds


_REQUESTS: Final = Sku("kms.requests", "Requests of keys", "1000 requests", 1000)


KMS: Final[Family[KmsNeeds]] = Family(
    name="kms",
    title="Keys",
    runs="cloudcore.kms.runtime:RUNTIME",
    skus=(STORED_KEYS, _REQUESTS),
    resources=(KEY,),
    event_types_by_action={
        "kms:EnableKey": "kms.key.enabled",
        "kms:DisableKey": "kms.key.disabled",
        "kms:RotateKey": "kms.key.rotated",
        "kms:ScheduleKeyDeletion": "kms.key.deletion_scheduled",
        "kms:CancelKeyDeletion": "kms.key.deletion_cancelled",
        "kms:DeleteKey": "kms.key.deleted",
    },
    event_words={
        "kms.key.deletion_scheduled": "The deletion of a key was scheduled",
        "kms.key.deletion_cancelled": "The deletion of a key was cancelled",
    },
)
