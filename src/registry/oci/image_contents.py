"""What is inside an image: its manifest and its configuration, as readers of pages need them.

Both are documents of whoever pushed them, and a push checks no more of them than the registry
relies on. A document without the shape that the image-spec gives it is read as None.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import field

T = TypeVar("T")

MAX_CONFIGURATION_BYTES: Final = 1 << 20
"""A larger configuration is not read. A usual one has some 10 KiB."""
_ATTESTATION: Final = "vnd.docker.reference.type"
_ABOUT: Final = "vnd.docker.reference.digest"


class ImagePlatform(msgspec.Struct):
    """What an image runs on (image-spec, "Image Index")."""

    architecture: str = ""
    os: str = ""
    variant: str = ""
    version: str = field(default="", name="os.version")

    def __str__(self) -> str:
        """Return it as clients spell it: ``linux/arm/v7``."""
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
        """Return True if BuildKit added it to an index, about another of its children."""
        return _ATTESTATION in (self.annotations or {})

    @property
    def about(self) -> str | None:
        """Return the digest of the child that an attestation is about."""
        return (self.annotations or {}).get(_ABOUT)


class ManifestContents(msgspec.Struct):
    """A manifest or an index."""

    layers: list[ContentDescriptor] | None = None
    manifests: list[ContentDescriptor] | None = None
    annotations: dict[str, str] | None = None

    @property
    def platforms(self) -> list[str]:
        """Return the platforms of an index, each once, in its order."""
        return list(
            dict.fromkeys(
                str(each.platform)
                for each in self.manifests or ()
                if each.platform is not None and not each.is_attestation
            )
        )


class Execution(msgspec.Struct, rename="pascal"):
    """How a container of the image is started."""

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
    """It made no layer."""


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
        """Return what the image runs on, as clients spell it."""
        return str(ImagePlatform(self.architecture, self.os, self.variant))


def parse_contents(document: bytes) -> ManifestContents | None:
    """Return a manifest or an index, or None if it has another shape."""
    return _parse(document, ManifestContents)


def parse_configuration(document: bytes) -> Configuration | None:
    """Return the configuration of an image, or None if it is none.

    The configurations of other artifacts name no platform.
    """
    found = _parse(document, Configuration)
    return found if found is not None and (found.os or found.architecture) else None


def _parse(document: bytes, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(document, type=shape)
    except (ValueError, RecursionError):
        return None
