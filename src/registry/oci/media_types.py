"""The media types of manifests, indexes and foreign layers."""

from __future__ import annotations

from typing import Final

OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_MANIFEST_LIST: Final = "application/vnd.docker.distribution.manifest.list.v2+json"

IMAGE_TYPES: Final = frozenset({OCI_MANIFEST, DOCKER_MANIFEST})
INDEX_TYPES: Final = frozenset({OCI_INDEX, DOCKER_MANIFEST_LIST})
MANIFEST_TYPES: Final = IMAGE_TYPES | INDEX_TYPES
ACCEPT_MANIFESTS: Final = f"{OCI_INDEX}, {OCI_MANIFEST}, {DOCKER_MANIFEST_LIST}, {DOCKER_MANIFEST}"
"""The ``Accept`` of requests for manifests."""


def is_foreign_layer(media_type: str) -> bool:
    """Return True if the layer may be stored outside the registry (image-spec, layer)."""
    return "nondistributable" in media_type or ".foreign." in media_type
