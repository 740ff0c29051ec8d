"""The errors of buckets, named as in S3, as subclasses of those in `cloudcore.errors`.

`/v1` responds with the code of the base class, the S3 endpoint with the name of the subclass.
"""

from __future__ import annotations

from cloudcore import errors


class NoSuchBucket(errors.NotFound):
    """The bucket does not exist, or is another account's."""

    def __init__(self) -> None:
        super().__init__("there is no such bucket", reason="bucket_not_found")


class NoSuchKey(errors.NotFound):
    """The bucket has no object with this key."""

    def __init__(self) -> None:
        super().__init__("there is no such object", reason="object_not_found")


class NoSuchUpload(errors.NotFound):
    """The multipart upload never existed, or was completed or aborted."""

    def __init__(self) -> None:
        super().__init__("there is no such multipart upload", reason="upload_not_found")


class NoSuchCORSConfiguration(errors.NotFound):
    """The bucket has no CORS rules."""

    def __init__(self) -> None:
        super().__init__("the bucket has no CORS rules", reason="cors_not_found")


class BucketAlreadyExists(errors.Conflict):
    """Another account has a bucket with this name in the region."""

    def __init__(self) -> None:
        super().__init__(
            "the name is taken: a bucket's name is unique in the region", reason="bucket_exists"
        )


class BucketAlreadyOwnedByYou(errors.Conflict):
    """The account already has a bucket with this name."""

    def __init__(self) -> None:
        super().__init__("the account has a bucket of this name", reason="bucket_owned")


class BucketNotEmpty(errors.Conflict):
    """The bucket has objects, or an upload has just begun in the bucket."""

    def __init__(self, words: str = "the bucket has objects; delete them first") -> None:
        super().__init__(words, reason="bucket_not_empty")


class InvalidBucketState(errors.Conflict):
    """Another resource needs the bucket."""

    def __init__(self, user: str) -> None:
        super().__init__(
            f"the {user} needs the bucket; delete that first", reason="bucket_in_use", user=user
        )


class InvalidBucketName(errors.InvalidInput):
    """The name of a bucket is malformed."""

    def __init__(self) -> None:
        super().__init__(
            "name: 3 to 63 of a-z 0-9 - ., labels between dots that begin and end with a letter or"
            " digit, and no IP address",
            field="name",
            reason="malformed",
        )


class KeyTooLong(errors.InvalidInput):
    """The key of an object is empty, is not valid text, or has more than 1,024 bytes of UTF-8."""

    def __init__(self) -> None:
        super().__init__("key: 1 to 1024 bytes of UTF-8", field="key", reason="out_of_range")


class InvalidTag(errors.InvalidInput):
    """There are too many tags, or one is malformed."""


class MetadataTooLarge(errors.InvalidInput):
    """The metadata of an object have too many bytes, or a malformed name or value."""


class InvalidStorageClass(errors.InvalidInput):
    """The storage class does not exist."""


class InvalidPart(errors.InvalidInput):
    """A part listed in a completion was not uploaded, or has another ETag or checksum."""


class InvalidPartOrder(errors.InvalidInput):
    """The part numbers in a completion do not ascend."""


class InvalidPartNumber(errors.InvalidInput):
    """The number of a part is not from 1 to 10,000."""

    def __init__(self) -> None:
        super().__init__(
            "part_number: a whole number from 1 to 10000",
            field="part_number",
            reason="out_of_range",
        )


class EntityTooSmall(errors.InvalidInput):
    """A part that is not the last has fewer than 5 MiB."""


class BadDigest(errors.InvalidInput):
    """The bytes do not match the digest or checksum that was sent with them."""


class SizeDiffers(errors.InvalidInput):
    """The total size of the parts in a completion differs from the announced size."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the object has {size} bytes", reason="size_mismatch")


class UnknownChecksum(errors.InvalidInput):
    """A completion has a checksum that is not by the upload's algorithm."""

    def __init__(self, algorithm: str | None, named: str) -> None:
        super().__init__(
            f"the upload was created with the checksum algorithm {algorithm or 'none'}, so"
            f" {named} cannot be compared",
            reason="unknown_checksum",
        )


class IncompleteBody(errors.InvalidInput):
    """The body ended before its declared length."""

    def __init__(self) -> None:
        super().__init__("the body did not arrive whole", reason="incomplete_body")


class EntityTooLarge(errors.PayloadTooLarge):
    """The object or the part has more bytes than is allowed."""


class TooManyBuckets(errors.QuotaExceeded):
    """The account has reached its maximum number of buckets."""


class BytesQuotaExceeded(errors.QuotaExceeded):
    """The bytes would exceed the maximum number of bytes in the account's buckets."""


class ConditionFailed(errors.PreconditionFailed):
    """A condition of the request does not hold for the existing object."""

    def __init__(self, header: str) -> None:
        super().__init__(f"{header} does not hold", condition=header)
        self.header = header


class InvalidRange(errors.RangeNotSatisfiable):
    """The ``Range`` has no byte of the object."""


class NoSuchPart(errors.RangeNotSatisfiable):
    """A part number exceeds the number of the object's parts."""


class BytesDamaged(errors.Unavailable):
    """The stored bytes of an object are absent, or were changed."""

    def __init__(self) -> None:
        super().__init__("the stored bytes of the object are damaged; store it again")
