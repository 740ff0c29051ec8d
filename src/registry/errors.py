"""What can go wrong in the registry; leaves of the tree in `cloudcore.errors`.

    InvalidInput      NameInvalid · TagInvalid · DigestInvalid · DigestMismatch · SizeInvalid
                      RangeInvalid · RangeUnsatisfiable · ListQueryInvalid
                      ManifestInvalid · ManifestTypeUnsupported · TooManyTags
    NotFound          NameUnknown · ManifestUnknown · BlobUnknown · UploadUnknown
                      ManifestBlobUnknown · ExtensionUnknown
    Conflict          TagImmutable · TagDeleteForbidden · ManifestReferenced · BlobReferenced
                      UploadBusy · UploadOutOfOrder
    PayloadTooLarge   ManifestTooLarge · BlobTooLarge
    Unauthenticated   TokenRequired
    AccessDenied      TokenDenied
    RateLimited       TooManyUploads
    Unavailable       StoreUnavailable

The tables that turn them into answers are `registry.distribution.errors` and, for the control
plane, `cloudcore.web.envelope`.
"""

from __future__ import annotations

from typing import Final

from cloudcore.errors import (
    AccessDenied,
    Conflict,
    InvalidInput,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    Unauthenticated,
    Unavailable,
)

MOST_SHOWN: Final = 100
"""How many items of a request an error names."""


class NameInvalid(InvalidInput):
    """The repository name breaks the grammar."""


class TagInvalid(InvalidInput):
    """The tag breaks the grammar."""


class DigestInvalid(InvalidInput):
    """The digest is missing, malformed or of an algorithm we do not verify."""


class DigestMismatch(DigestInvalid):
    """The bytes do not hash to the digest they were sent under."""


class SizeInvalid(InvalidInput):
    """The body is not as long as it was declared to be."""


class RangeInvalid(InvalidInput):
    """A ``Content-Range`` breaks the grammar of an upload."""


class RangeUnsatisfiable(InvalidInput):
    """A ``Range`` holds no byte of the content, which has `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the range lies outside the {size} bytes of the content")
        self.size = size


class ListQueryInvalid(InvalidInput):
    """A paging parameter of a list is not what it should be."""


class ManifestInvalid(InvalidInput):
    """The document is not one manifest with one reading."""


class ManifestTypeUnsupported(ManifestInvalid):
    """The media type is none of the four we store."""


class TooManyTags(InvalidInput):
    """One request names more tags than it may."""


class NameUnknown(NotFound):
    """No such repository."""


class ManifestUnknown(NotFound):
    """No such manifest or tag in this repository."""


class BlobUnknown(NotFound):
    """The repository does not link this blob, whoever else may hold its bytes."""


class UploadUnknown(NotFound):
    """No such upload session in this repository, or it has ended."""


class ManifestBlobUnknown(NotFound):
    """A manifest refers to content this repository does not have, of these `digests`.

    An answer names the first `MOST_SHOWN`, and the number of all.
    """

    def __init__(self, digests: list[str]) -> None:
        super().__init__("the manifest refers to content that is not in this repository")
        self.digests = digests


class ExtensionUnknown(NotFound):
    """The path is below ``/v2/`` but is no endpoint we know."""


class TagImmutable(Conflict):
    """The tag already names another digest and may not move."""


class TagDeleteForbidden(Conflict):
    """The tag is immutable, so it may not be deleted alone."""


class ManifestReferenced(Conflict):
    """The manifest is a child of an index here; deleting it would break the index."""


class BlobReferenced(Conflict):
    """A manifest of this repository references the blob."""


class UploadBusy(Conflict):
    """Another request is writing to this upload session now."""


class UploadOutOfOrder(Conflict):
    """The chunk does not start where the session's bytes end; `received_bytes` says where."""

    def __init__(self, received_bytes: int) -> None:
        super().__init__(f"the next chunk must start at byte {received_bytes}")
        self.received_bytes = received_bytes


class ManifestTooLarge(PayloadTooLarge):
    """The manifest is over the limit."""


class BlobTooLarge(PayloadTooLarge):
    """The blob is over the limit."""


class TooManyUploads(RateLimited):
    """The repository or its account has as many upload sessions open as it may."""


class StoreUnavailable(Unavailable):
    """The blob store cannot take or give bytes now: disk full, or an I/O error."""


class TokenRequired(Unauthenticated):
    """Another credential may help; `challenge` says which (``WWW-Authenticate``)."""

    def __init__(self, message: str, challenge: str) -> None:
        super().__init__(message)
        self.challenge = challenge


class TokenDenied(AccessDenied):
    """The caller is known and refused; `challenge` says what was needed."""

    def __init__(self, message: str, challenge: str) -> None:
        super().__init__(message)
        self.challenge = challenge
