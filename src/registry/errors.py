"""The errors of the registry, by their base class in `cloudcore.errors`.

    InvalidInput      NameInvalid · TagInvalid · DigestInvalid · DigestMismatch · SizeInvalid
                      RangeInvalid · RangeUnsatisfiable · ListQueryInvalid
                      ManifestInvalid · ManifestTypeUnsupported · TooManyTags
    NotFound          NameUnknown · ManifestUnknown · BlobUnknown · UploadUnknown
                      ManifestBlobUnknown · ExtensionUnknown · KmsKeyDeleted
    Conflict          TagImmutable · TagDeleteForbidden · ManifestReferenced · BlobReferenced
                      UploadBusy · UploadOutOfOrder · RepositoryMirrored
    PayloadTooLarge   ManifestTooLarge · BlobTooLarge
    Unauthenticated   TokenRequired
    AccessDenied      TokenDenied · KmsKeyDisabled
    RateLimited       TooManyUploads
    Unavailable       StoreUnavailable

`registry.distribution.errors` maps them to responses of the data plane, and
`cloudcore.error_codes` to responses of the control plane.
"""

from __future__ import annotations

from typing import Final

from cloudcore import errors as platform
from cloudcore.objects.wraps import KeyDeleted, KeyDisabled

MOST_SHOWN: Final = 100
"""Maximum number of items that an error lists."""
_KEY_DELETED: Final = (
    "the KMS key of the repository was deleted; bind the repository to another, and push again"
)
_KEY_DISABLED: Final = (
    "the KMS key of the repository is disabled, or its deletion is pending; enable it, or bind the "
    "repository to another, and push again"
)


class NameInvalid(platform.InvalidInput):
    """The repository name does not match the grammar."""


class TagInvalid(platform.InvalidInput):
    """The tag does not match the grammar."""


class DigestInvalid(platform.InvalidInput):
    """The digest is missing, malformed, or of an unsupported algorithm."""


class DigestMismatch(DigestInvalid):
    """The bytes do not match the digest they were sent with."""


class SizeInvalid(platform.InvalidInput):
    """The body does not have its declared size."""


class RangeInvalid(platform.InvalidInput):
    """The ``Content-Range`` of an upload is malformed."""


class RangeUnsatisfiable(platform.InvalidInput):
    """No byte of the ``Range`` is within the content, which has `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the range lies outside the {size} bytes of the content")
        self.size = size


class ListQueryInvalid(platform.InvalidInput):
    """A paging parameter of a list is invalid."""


class ManifestInvalid(platform.InvalidInput):
    """The document is not a valid, unambiguous manifest."""


class ManifestTypeUnsupported(ManifestInvalid):
    """The media type is not one of the four that are supported."""


class TooManyTags(platform.InvalidInput):
    """One request names too many tags."""


class NameUnknown(platform.NotFound):
    """No such repository."""


class ManifestUnknown(platform.NotFound):
    """No such manifest or tag in this repository."""


class BlobUnknown(platform.NotFound):
    """The repository does not link this blob; other repositories may."""


class UploadUnknown(platform.NotFound):
    """No such upload session in this repository, or it has ended."""


class ManifestBlobUnknown(platform.NotFound):
    """A manifest refers to content that is not in the repository; `digests` are the missing ones.

    A response lists the first `MOST_SHOWN`, and the total.
    """

    def __init__(self, digests: list[str]) -> None:
        super().__init__("the manifest refers to content that is not in this repository")
        self.digests = digests


class ExtensionUnknown(platform.NotFound):
    """The path is below ``/v2/``, but is not a known endpoint."""


class KmsKeyDeleted(KeyDeleted):
    """The KMS key that encrypts a repository's new blobs, or that a blob needs, was deleted."""

    def __init__(self, message: str = _KEY_DELETED) -> None:
        super().__init__(message)


class KmsKeyDisabled(KeyDisabled):
    """The KMS key of a repository's new blobs, or of a blob, is disabled or pending deletion."""

    def __init__(self, message: str = _KEY_DISABLED) -> None:
        super().__init__(message)


class TagImmutable(platform.Conflict):
    """The immutable tag points to another digest and may not move."""


class TagDeleteForbidden(platform.Conflict):
    """The tag is immutable, so it can be deleted only together with its manifest."""


class ManifestReferenced(platform.Conflict):
    """An index of this repository lists the manifest; deleting it would break the index."""


class BlobReferenced(platform.Conflict):
    """A manifest of this repository references the blob."""


class UploadBusy(platform.Conflict):
    """Another request is writing to this upload session."""


class RepositoryMirrored(platform.Conflict):
    """The repository's name belongs to a pull-through cache rule: clients may not push to it."""


class UploadOutOfOrder(platform.Conflict):
    """The chunk does not start at `received_bytes`, the end of what the session has received."""

    def __init__(self, received_bytes: int, message: str | None = None) -> None:
        super().__init__(message or f"the next chunk must start at byte {received_bytes}")
        self.received_bytes = received_bytes


class ManifestTooLarge(platform.PayloadTooLarge):
    """The manifest is over the limit."""


class BlobTooLarge(platform.PayloadTooLarge):
    """The blob is over the limit."""


class TooManyUploads(platform.RateLimited):
    """The repository or its account has the maximum of open upload sessions."""


class StoreUnavailable(platform.Unavailable):
    """The blob store cannot read or write: the disk is full, or an I/O error occurred."""


class TokenRequired(platform.Unauthenticated):
    """The client must sign in as `challenge` describes (``WWW-Authenticate``)."""

    def __init__(self, message: str, challenge: str) -> None:
        super().__init__(message)
        self.challenge = challenge


class TokenDenied(platform.AccessDenied):
    """The client is signed in, but lacks the access that `challenge` names."""

    def __init__(self, message: str, challenge: str) -> None:
        super().__init__(message)
        self.challenge = challenge
