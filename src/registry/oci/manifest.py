"""Parse manifests and indexes, and reject those that two readers could interpret differently.

Duplicate keys, both ``layers`` and ``manifests``, or a ``mediaType`` that contradicts the header
are rejected (CVE-2021-41190). Unknown fields are accepted, since the exact bytes are stored.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

import msgspec

from cloudcore.json_size import NamedTwice, json_size, unique_members
from registry.errors import DigestInvalid, DigestMismatch, ManifestInvalid, ManifestTypeUnsupported
from registry.oci import media_types
from registry.oci.digest import Digest, check_foreign_digest, digest_of
from registry.oci.media_types import is_foreign_layer

MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a manifest in bytes. distribution-spec asks registries for at least 4 MB."""
MAX_DESCRIPTORS: Final = 5_000
"""Maximum number of descriptors: config, layers, children and subject. ECR allows 4,200 layers."""
MAX_ANNOTATIONS: Final = 10_000
"""Maximum number of annotations, of the manifest and of its descriptors together."""
MAX_PARTS: Final = 100_000
"""Maximum number of names and values in the JSON, known or not: each becomes an object."""
_NAME_BYTES: Final = len(b'"":0')
"""Minimum bytes of a name with its value."""

_ARTIFACT_TYPE: Final = re.compile(r"[!-~]{1,255}")
_MEDIA_TYPE: Final = re.compile(r"[ -~]{1,255}")
_UNSPECIFIC: Final = frozenset({"", "application/json", "application/octet-stream"})


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A reference to content: its media type, digest and size in bytes (image-spec)."""

    media_type: str
    digest: str
    size: int


class Manifest(msgspec.Struct, frozen=True):
    """The parts of a manifest or index that the registry uses."""

    media_type: str
    is_index: bool
    config: Descriptor | None
    layers: tuple[Descriptor, ...]
    children: tuple[Descriptor, ...]
    subject: str | None
    """A digest, of any algorithm: the manifest with this digest need not be in the registry."""
    artifact_type: str | None
    annotations: str
    """JSON object of strings, up to 4 MB; stored in this form."""

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """Return the config and the layers in order, with each digest only once."""
        listed = (self.config, *self.layers) if self.config else self.layers
        return tuple({descriptor.digest: descriptor for descriptor in listed}.values())


class _Document(msgspec.Struct, rename="camel"):
    """The fields of the four manifest types that we read; others are ignored."""

    schema_version: int
    media_type: str | None = None
    config: Descriptor | None = None
    layers: list[Descriptor] | None = None
    manifests: list[Descriptor] | None = None
    subject: Descriptor | None = None
    artifact_type: str | None = None
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct):
    """The raw annotations of one descriptor."""

    annotations: msgspec.Raw = msgspec.Raw()


class _Annotations(_Annotated):
    """The raw annotations of a document and of all its descriptors."""

    config: _Annotated | None = None
    layers: list[_Annotated] | None = None
    manifests: list[_Annotated] | None = None
    subject: _Annotated | None = None


_decoder: Final = msgspec.json.Decoder(_Document)
_annotations_decoder: Final = msgspec.json.Decoder(_Annotations)


class _Size(msgspec.Struct):
    size: msgspec.Raw


class _Sizes(msgspec.Struct):
    """The raw sizes of a document's descriptors."""

    config: _Size | None = None
    layers: list[_Size] | None = None
    manifests: list[_Size] | None = None
    subject: _Size | None = None


_NEGATIVE_ZERO: Final = re.compile(rb":[ \t\r\n]*-0[ \t\r\n,}]")
_sizes_decoder: Final = msgspec.json.Decoder(_Sizes)


def parse_manifest(body: bytes, content_type: str | None, *, is_stored: bool = False) -> Manifest:
    """Parse `body`, sent with the ``Content-Type`` header `content_type`.

    With `is_stored`, the maximums are not checked, as they were checked when the body was pushed.

    Raise `ManifestInvalid` if `body` is not JSON, not a manifest, ambiguous, or over a maximum;
    `ManifestTypeUnsupported` if the media type is not one of `media_types.MANIFEST_TYPES`.
    """
    try:
        if not is_stored:
            _check_size(body)
        json.loads(body.decode(), object_pairs_hook=unique_members)
        document = _decoder.decode(body)
        if not is_stored:
            _refuse_negative_zero(body)
    except ManifestInvalid:
        raise
    except NamedTwice:
        raise ManifestInvalid("the manifest has an object with the same key twice") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ManifestInvalid(f"the manifest cannot be read: {_why(error)}"[:300]) from None
    media_type = _media_type(document, content_type)
    is_index = media_type in media_types.INDEX_TYPES
    _check_shape(document, is_index=is_index)
    config = document.config
    return Manifest(
        media_type=media_type,
        is_index=is_index,
        config=config,
        layers=tuple(document.layers or ()),
        children=tuple(document.manifests or ()),
        subject=document.subject.digest if document.subject else None,
        artifact_type=document.artifact_type or (config.media_type if config else None),
        annotations=msgspec.json.encode(document.annotations or {}).decode(),
    )


def _why(error: Exception) -> str:
    """Describe a parser's error without Python-specific details."""
    match error:
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case RecursionError():
            return "it is nested too deep"
        case json.JSONDecodeError() if "BOM" in error.msg:
            return "it begins with a byte order mark; JSON has none"
        case json.JSONDecodeError() | msgspec.ValidationError():
            return str(error)
        case msgspec.DecodeError():  # what `json` lets pass
            return "it has half a surrogate pair (\\ud800 to \\udfff), NaN or Infinity"
        case _:
            return "it has a number of thousands of digits"


def _refuse_negative_zero(body: bytes) -> None:
    """Reject the size ``-0``, which the decoder reads as 0 and other readers as a float."""
    if not _NEGATIVE_ZERO.search(body):
        return  # as in nearly every manifest
    found = _sizes_decoder.decode(body)
    single = [part for part in (found.config, found.subject) if part]
    for part in (*single, *(found.layers or ()), *(found.manifests or ())):
        if bytes(part.size) == b"-0":
            raise ManifestInvalid("a descriptor's size must be a number of bytes, not -0")


def _check_size(body: bytes) -> None:
    """Reject a document over the maximums, before a parser creates objects for its parts."""
    if len(body) <= MAX_ANNOTATIONS * _NAME_BYTES:
        return  # too short to exceed a maximum, as nearly every manifest is
    size = json_size(body, MAX_PARTS)
    if size.parts > MAX_PARTS:
        raise ManifestInvalid(f"a manifest has at most {MAX_PARTS} JSON names and values")
    if size.names <= MAX_ANNOTATIONS:
        return  # nor too many descriptors: each has three names
    document = _annotations_decoder.decode(body)
    parts = [part for part in (document.config, document.subject) if part]
    descriptors = [*(document.layers or ()), *(document.manifests or ()), *parts]
    if len(descriptors) > MAX_DESCRIPTORS:
        raise ManifestInvalid(
            f"a manifest has at most {MAX_DESCRIPTORS} descriptors, this one {len(descriptors)}"
        )
    annotations = sum(
        json_size(memoryview(each.annotations), MAX_PARTS).names
        for each in (document, *descriptors)
    )
    if annotations > MAX_ANNOTATIONS:
        raise ManifestInvalid(
            f"a manifest has at most {MAX_ANNOTATIONS} annotations, this one {annotations}"
        )


def is_specific(content_type: str | None) -> bool:
    """Return True if the header names a media type other than plain JSON or octet-stream."""
    return _bare(content_type) not in _UNSPECIFIC


def _bare(content_type: str | None) -> str:
    """Return a header's media type in lower case, without parameters."""
    return (content_type or "").partition(";")[0].strip().lower()


def _media_type(document: _Document, content_type: str | None) -> str:
    """Return a document's media type; its header and its ``mediaType`` must agree.

    If the header is not specific, ``mediaType`` decides; without one, the fields present.
    """
    sent = _bare(content_type)
    declared = document.media_type
    if sent in _UNSPECIFIC:
        sent = declared or _inferred(document)
    if sent not in media_types.MANIFEST_TYPES:
        raise ManifestTypeUnsupported(
            "the media type must be an OCI manifest or index, or a Docker schema 2 manifest "
            "or manifest list",
            media_type=sent[:255],
        )
    if declared is not None and declared != sent:
        raise ManifestInvalid(f"Content-Type says {sent}, but mediaType says {declared[:255]}")
    return sent


def _inferred(document: _Document) -> str:
    if document.manifests is not None:
        return media_types.OCI_INDEX
    if document.config is not None and document.layers is not None:
        return media_types.OCI_MANIFEST
    raise ManifestInvalid("neither Content-Type nor mediaType says what the document is")


def _check_shape(document: _Document, *, is_index: bool) -> None:
    """Reject a document that lacks fields of its type, or has those of another."""
    if document.schema_version != 2:
        raise ManifestInvalid("schemaVersion must be 2")
    has_image_parts = document.config is not None or document.layers is not None
    if is_index and (document.manifests is None or has_image_parts):
        raise ManifestInvalid("an index has manifests, and neither config nor layers")
    if not is_index and (
        document.config is None or document.layers is None or document.manifests is not None
    ):
        raise ManifestInvalid("an image manifest has config and layers, and no manifests")
    if document.artifact_type and not _ARTIFACT_TYPE.fullmatch(document.artifact_type):
        raise ManifestInvalid("artifactType is not a media type")
    for descriptor in (*(document.layers or ()), *(document.manifests or ())):
        _check_descriptor(descriptor, is_stored=not is_foreign_layer(descriptor.media_type))
    if document.config:
        _check_descriptor(document.config, is_stored=True)
    if document.subject:
        _check_descriptor(document.subject, is_stored=False)


def _check_descriptor(descriptor: Descriptor, *, is_stored: bool) -> None:
    """Reject a descriptor with an invalid digest, size or media type.

    With `is_stored`, the content must be here, so its digest algorithm must be one that the
    registry computes.
    """
    try:
        if is_stored:
            Digest.parse(descriptor.digest)
        else:
            check_foreign_digest(descriptor.digest)
    except DigestInvalid as error:
        raise ManifestInvalid(f"a descriptor's digest is invalid: {error.message}") from None
    if not 0 <= descriptor.size < 1 << 63:
        raise ManifestInvalid("a descriptor's size must be a number of bytes, at least 0")
    if not _MEDIA_TYPE.fullmatch(descriptor.media_type):
        raise ManifestInvalid("a descriptor's mediaType is not a media type")


class ReadManifest(NamedTuple):
    """A parsed manifest and the digests of its bytes."""

    manifest: Manifest
    digest: Digest
    """The sha256."""
    sha512: Digest


def read_manifest(body: bytes, content_type: str | None, expected: Digest | None) -> ReadManifest:
    """Parse a pushed manifest and compute its digests.

    Raises:
        DigestMismatch: the bytes do not hash to `expected`.
        ManifestInvalid, ManifestTypeUnsupported: see `parse_manifest`.

    """
    # Hash only when needed: for an oversized document, hashing is most of the cost.
    names: dict[str, Digest] = {}
    if expected is not None:
        found = digest_of(body, expected.algorithm)
        if expected != found:
            raise DigestMismatch(
                f"the manifest's bytes do not hash to {expected}", digest=str(expected)
            )
        names[expected.algorithm] = found
    manifest = parse_manifest(body, content_type)
    return ReadManifest(
        manifest,
        names.get("sha256") or digest_of(body),
        names.get("sha512") or digest_of(body, "sha512"),
    )
