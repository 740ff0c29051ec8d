"""The contents of an image, for display: its manifest and its configuration.

Clients wrote both documents, and a push checks only what the registry relies on. A document that
does not have the image-spec's structure is parsed as None.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import field

T = TypeVar("T")

MAX_CONFIGURATION_BYTES: Final = 1 << 20
"""Larger configurations are not read. A typical one has 10 KiB."""
_ATTESTATION: Final = "vnd.docker.reference.type"
_ABOUT: Final = "vnd.docker.reference.digest"


class ImagePlatform(msgspec.Struct):
    """The platform of an image (image-spec, "Image Index")."""

    architecture: str = ""
    os: str = ""
    variant: str = ""
    version: str = field(default="", name="os.version")

    def __str__(self) -> str:
        """Return the platform as clients write it: ``linux/arm/v7``."""
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class ContentDescriptor(msgspec.Struct):
    """A reference to content (image-spec, "Descriptor")."""

    digest: str
    size: int
    media_type: str = field(default="", name="mediaType")
    platform: ImagePlatform | None = None
    annotations: dict[str, str] | None = None

    @property
    def is_attestation(self) -> bool:
        """Return True if this is a BuildKit attestation of another child of the index."""
        return _ATTESTATION in (self.annotations or {})

    @property
    def about(self) -> str | None:
        """Return the digest of the child that the attestation is about, or None."""
        return (self.annotations or {}).get(_ABOUT)


class ManifestContents(msgspec.Struct):
    """A manifest or an index."""

    layers: list[ContentDescriptor] | None = None
    manifests: list[ContentDescriptor] | None = None
    annotations: dict[str, str] | None = None

    @property
    def platforms(self) -> list[str]:
        """Return the distinct platforms of an index, in its order."""
        return list(
            dict.fromkeys(
                str(each.platform)
                for each in self.manifests or ()
                if each.platform is not None and not each.is_attestation
            )
        )


class _Layer(msgspec.Struct):
    digest: str


class _Layers(msgspec.Struct):
    layers: list[_Layer] | None = None


class Execution(msgspec.Struct, rename="pascal"):
    """The settings with which a container of the image starts."""

    user: str = ""
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    env: list[str] | None = None
    working_dir: str = ""
    exposed_ports: dict[str, Any] | None = None
    labels: dict[str, str] | None = None


class HistoryEntry(msgspec.Struct):
    """A step of the build."""

    created: str | None = None
    created_by: str = ""
    comment: str = ""
    empty_layer: bool = False
    """True if the step made no layer."""


class Configuration(msgspec.Struct):
    """The configuration of an image (image-spec, "Image Configuration")."""

    architecture: str = ""
    os: str = ""
    variant: str = ""
    created: str | None = None
    author: str = ""
    config: Execution | None = None
    history: list[HistoryEntry] | None = None

    @property
    def platform(self) -> str:
        """Return the image's platform as clients write it."""
        return str(ImagePlatform(self.architecture, self.os, self.variant))


def parse_contents(document: bytes) -> ManifestContents | None:
    """Parse a manifest or index; return None if the document has another structure."""
    return _parse(document, ManifestContents)


def parse_layers(document: bytes) -> list[str]:
    """Return the digests of a manifest's layers; an empty list if it has another structure.

    Everything else is skipped: parsing the annotations too would take three times as long.
    """
    found = _parse(document, _Layers)
    return [] if found is None else [each.digest for each in found.layers or ()]


def parse_configuration(document: bytes) -> Configuration | None:
    """Parse the configuration of an image; return None if the document is not one.

    A configuration without a platform belongs to another kind of artifact.
    """
    found = _parse(document, Configuration)
    return found if found is not None and (found.os or found.architecture) else None


def _parse(document: bytes, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(document, type=shape)
    except (ValueError, RecursionError):
        return None
