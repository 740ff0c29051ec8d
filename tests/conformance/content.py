"""Blobs and manifests that tests make: bytes, their media type, their digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import blake3

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
OCI_EMPTY = "application/vnd.oci.empty.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_MANIFEST_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
OCTET_STREAM = "application/octet-stream"
MANIFEST_TYPES = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_MANIFEST_LIST)

_HASHES: dict[str, Callable[[bytes], str]] = {
    "sha256": lambda data: hashlib.sha256(data).hexdigest(),
    "sha512": lambda data: hashlib.sha512(data).hexdigest(),
    "blake3": lambda data: blake3.blake3(data).hexdigest(),
}


def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    """Return the digest string of `data` (image-spec, Descriptors § Digests)."""
    return f"{algorithm}:{_HASHES[algorithm](data)}"


@dataclass(frozen=True)
class Content:
    """Bytes with the media type under which they are pushed."""

    body: bytes
    media_type: str = OCTET_STREAM
    algorithm: str = "sha256"

    @property
    def digest(self) -> str:
        """Return the digest by which these bytes are pushed and pulled."""
        return digest_of(self.body, self.algorithm)

    @property
    def descriptor(self) -> dict[str, Any]:
        """Return the descriptor a manifest uses for these bytes."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.body)}


def blob(size: int = 64, media_type: str = OCI_LAYER, algorithm: str = "sha256") -> Content:
    """Return `size` random bytes, so that no earlier test has pushed them."""
    return Content(os.urandom(size), media_type, algorithm)


def config() -> Content:
    """Return an image config that no other test has."""
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": {"unique": os.urandom(8).hex()}},
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    return Content(json.dumps(document).encode(), OCI_CONFIG)


def document(fields: dict[str, Any], media_type: str, algorithm: str = "sha256") -> Content:
    """Serialise a manifest; indented, so that a registry that re-serialises is found out."""
    return Content(json.dumps(fields, indent=3).encode(), media_type, algorithm)


def image_manifest(
    image_config: Content,
    layers: Iterable[Content] = (),
    media_type: str = OCI_MANIFEST,
    algorithm: str = "sha256",
    **fields: object,
) -> Content:
    """Return an image manifest over `image_config` and `layers`, with extra `fields`."""
    content = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": image_config.descriptor,
        "layers": [layer.descriptor for layer in layers],
        **fields,
    }
    return document(content, media_type, algorithm)


def image_index(
    manifests: Iterable[Content] = (),
    media_type: str = OCI_INDEX,
    algorithm: str = "sha256",
    **fields: object,
) -> Content:
    """Return an image index over `manifests`, with extra `fields`."""
    content = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "manifests": [manifest.descriptor for manifest in manifests],
        **fields,
    }
    return document(content, media_type, algorithm)


def unique_annotations() -> dict[str, str]:
    """Return annotations that make an otherwise equal manifest another one."""
    return {"org.example.unique": os.urandom(8).hex()}


def subject_of(manifest: Content) -> dict[str, Any]:
    """Return a `subject` field that names `manifest`."""
    return {"subject": manifest.descriptor}


EMPTY = Content(b"{}", OCI_EMPTY)
"""The empty descriptor's content (image-spec, Guidance for an Empty Descriptor)."""


def padded(manifest: Content, size: int) -> Content:
    """Return `manifest` with blanks after it, `size` bytes in all."""
    return Content(manifest.body.ljust(size), manifest.media_type)
