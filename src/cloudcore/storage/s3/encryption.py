"""What is said of the sealing of objects: each is sealed where the install seals.

The key is the bucket's: a request can ask for sealing (``AES256``), and not choose a key.
"""

from __future__ import annotations

from typing import Final

from cloudcore.storage.bucket import Bucket
from cloudcore.storage.s3.answers import Fields
from cloudcore.storage.s3.call import S3Call
from cloudcore.storage.s3.errors import S3Error

SEALED: Final = "AES256"
"""Sealed under a key that the platform manages."""
KMS: Final = "aws:kms"
"""Sealed under a KMS key that the bucket is bound to."""
_HEADER: Final = "x-amz-server-side-encryption"


def check_read(call: S3Call) -> None:
    """Refuse a read that asks for sealing, as S3 does: it is of what is written.

    Raises:
        S3Error: InvalidArgument.

    """
    if _HEADER in call.request.headers:
        raise S3Error("InvalidArgument", f"{_HEADER} is not supported for this operation.")


def written_fields(call: S3Call, bucket: Bucket) -> Fields:
    """Return the headers that say how what a request writes is sealed.

    Raises:
        S3Error: the request wants it sealed, and the install seals nothing.

    """
    if call.needs.bytes.seals:
        return sealed_fields(bucket)
    if _HEADER in call.request.headers:
        raise S3Error("NotImplemented", "Nothing is sealed here: the operator has turned it off.")
    return []


def sealed_fields(bucket: Bucket) -> Fields:
    """Return the headers that say how the sealed objects of a bucket are."""
    if bucket.kms_key_id is None:
        return [(_HEADER, SEALED)]
    return [(_HEADER, KMS), (f"{_HEADER}-aws-kms-key-id", bucket.kms_key_id)]
