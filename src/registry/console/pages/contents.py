"""The contents of an image from ``/v1``: its manifest, and the build steps of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from registry.console.page_request import PageRequest
from registry.oci.image_contents import ContentDescriptor, ManifestContents, parse_contents


class Layer(NamedTuple):
    """A layer, and the build step that made it."""

    descriptor: ContentDescriptor
    made_by: str


MAX_SHOWN: Final = 64 * 1024
"""Maximum bytes of a document that a page shows; the page of one of 4 MiB would take seconds."""


class RawDocument(NamedTuple):
    """A JSON document as a page shows it."""

    text: str
    """Indented, if it is JSON; cut to `MAX_SHOWN`."""
    size: int
    """Bytes of the whole document."""
    is_whole: bool


async def read_manifest(page: PageRequest, repository_id: str, digest: str) -> bytes:
    """Return the manifest of an image, as it was pushed."""
    return await page.api.read(f"/v1/repositories/{repository_id}/images/{digest}/manifest")


def contents_of(manifest: bytes) -> ManifestContents:
    """Return the contents of a manifest; empty ones if it is malformed."""
    return parse_contents(manifest) or ManifestContents()


def shown(document: bytes) -> RawDocument:
    """Return a document as a page shows it."""
    cut = document[:MAX_SHOWN]
    if len(cut) == len(document):
        with suppress(ValueError, RecursionError):
            cut = msgspec.json.format(document, indent=2)
    return RawDocument(cut.decode("utf-8", "replace"), len(document), len(document) <= MAX_SHOWN)


def layers_of(manifest: ManifestContents, configuration: Mapping[str, Any] | None) -> list[Layer]:
    """Return the layers, with their build steps if the history has exactly one for each."""
    history = configuration["history"] if configuration else []
    steps = [step["created_by"] for step in history if not step["empty_layer"]]
    layers = manifest.layers or []
    if len(steps) != len(layers):
        steps = [""] * len(layers)
    return [Layer(*pair) for pair in zip(layers, steps, strict=True)]
