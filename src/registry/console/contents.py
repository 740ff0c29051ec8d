"""What is inside an image: its manifest, as ``/v1`` gives it, and its configuration.

Both are documents of whoever pushed them. What has not the shape that the image-spec gives it is
shown as not there.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import field

from cloudcore.errors import PlatformError
from registry.blobstore.base import StoredRange
from registry.console.visit import Visit
from registry.oci.digest import Digest
from registry.oci.reference import parse_name
from registry.services.blobs.links import open_blob, stat_blob

T = TypeVar("T")

MAX_CONFIG_BYTES: Final = 1 << 20
_ATTESTATION: Final = "vnd.docker.reference.type"
_ABOUT: Final = "vnd.docker.reference.digest"


class Platform(msgspec.Struct):
    """What an image runs on (image-spec, "Image Index")."""

    architecture: str = ""
    os: str = ""
    variant: str = ""
    version: str = field(default="", name="os.version")

    def __str__(self) -> str:
        """Return it as clients spell it."""
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class Descriptor(msgspec.Struct):
    """A reference to content (image-spec, "Descriptor")."""

    digest: str
    size: int
    media_type: str = field(default="", name="mediaType")
    platform: Platform | None = None
    annotations: dict[str, str] | None = None

    @property
    def is_attestation(self) -> bool:
        """Say whether it is what BuildKit adds to an index about another of its children."""
        return _ATTESTATION in (self.annotations or {})

    @property
    def about(self) -> str | None:
        """Return the digest of that other one."""
        return (self.annotations or {}).get(_ABOUT)


class Manifest(msgspec.Struct):
    """A manifest or an index."""

    layers: list[Descriptor] | None = None
    manifests: list[Descriptor] | None = None
    annotations: dict[str, str] | None = None


class Execution(msgspec.Struct, rename="pascal"):
    """How a container is begun."""

    user: str = ""
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    working_dir: str = ""
    exposed_ports: dict[str, Any] | None = None


class Step(msgspec.Struct):
    """A step of the build."""

    created_by: str = ""
    empty_layer: bool = False


class Configuration(msgspec.Struct):
    """The configuration of an image (image-spec, "Image Configuration")."""

    architecture: str = ""
    os: str = ""
    variant: str = ""
    created: str | None = None
    author: str = ""
    config: Execution | None = None
    history: list[Step] | None = None

    @property
    def platform(self) -> str:
        """Return what it runs on."""
        return str(Platform(self.architecture, self.os, self.variant))


class Layer(NamedTuple):
    """A layer, and the step of the build that made it."""

    descriptor: Descriptor
    made_by: str


async def read_manifest(visit: Visit, repository_id: str, digest: str) -> Manifest:
    """Return the manifest of an image."""
    path = f"/v1/repositories/{repository_id}/images/{digest}/manifest"
    return _decoded(await visit.api.read(path), Manifest) or Manifest()


async def read_configuration(
    visit: Visit, repository: dict[str, Any], image: dict[str, Any]
) -> Configuration | None:
    """Return the configuration of an image that ``/v1`` has shown to this visitor."""
    if "config_digest" not in image:
        return None
    name = parse_name(repository["uri"].partition("/")[2])
    storage = visit.house.storage
    try:
        link = await stat_blob(storage, name, Digest.parse(image["config_digest"]))
        if link.size > MAX_CONFIG_BYTES:
            return None
        stored = await open_blob(storage, name, link, 0, link.size)
    except PlatformError:
        return None
    found = _decoded(await asyncio.to_thread(_content, stored), Configuration)
    return found if found is not None and (found.os or found.architecture) else None


def layers_of(manifest: Manifest, configuration: Configuration | None) -> list[Layer]:
    """Return the layers with what made each, if the history tells."""
    history = (configuration.history if configuration else None) or []
    steps = [step.created_by for step in history if not step.empty_layer]
    layers = manifest.layers or []
    if len(steps) != len(layers):
        steps = [""] * len(layers)
    return [Layer(*pair) for pair in zip(layers, steps, strict=True)]


def platforms_of(manifest: Manifest) -> list[str]:
    """Return the platforms of an index."""
    children = manifest.manifests or []
    return [
        str(each.platform)
        for each in children
        if each.platform is not None and not each.is_attestation
    ]


def _content(stored: StoredRange) -> bytes:
    try:
        return b"".join(stored.chunks())
    finally:
        stored.close()


def _decoded(document: bytes, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(document, type=shape)
    except (ValueError, RecursionError):
        return None
