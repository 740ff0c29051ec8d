"""The contents of an image from ``/v1``: its manifest, and the build steps of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from registry.console.page_request import PageRequest
from registry.oci.image_contents import ContentDescriptor, ManifestContents, parse_contents


class Layer(NamedTuple):
    """A layer, and the build step that made it."""

    descriptor: ContentDescriptor
    made_by: str


async def read_manifest(page: PageRequest, repository_id: str, digest: str) -> ManifestContents:
    """Return the manifest of an image; an empty one if it is malformed."""
    path = f"/v1/repositories/{repository_id}/images/{digest}/manifest"
    return parse_contents(await page.api.read(path)) or ManifestContents()


def layers_of(manifest: ManifestContents, configuration: Mapping[str, Any] | None) -> list[Layer]:
    """Return the layers, with their build steps if the history has exactly one for each."""
    history = configuration["history"] if configuration else []
    steps = [step["created_by"] for step in history if not step["empty_layer"]]
    layers = manifest.layers or []
    if len(steps) != len(layers):
        steps = [""] * len(layers)
    return [Layer(*pair) for pair in zip(layers, steps, strict=True)]
