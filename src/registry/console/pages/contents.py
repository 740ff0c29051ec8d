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
MAX_INDENTED: Final = 4 * MAX_SHOWN
"""Maximum bytes of the indented text; one that would be longer is shown as it was stored."""
_INDENT: Final = 2
_QUOTE, _BACKSLASH = b'"\\'
_OPENING, _CLOSING, _BETWEEN = b"[{", b"]}", b",:"


class RawDocument(NamedTuple):
    """A JSON document as a page shows it."""

    text: str
    """Indented, if it is JSON and not too long for it; cut to `MAX_SHOWN`."""
    size: int
    """Bytes of the whole document."""
    is_whole: bool
    is_indented: bool


async def read_manifest(page: PageRequest, repository_id: str, digest: str) -> bytes:
    """Return the manifest of an image, as it was pushed."""
    return await page.api.read(f"/v1/repositories/{repository_id}/images/{digest}/manifest")


def contents_of(manifest: bytes) -> ManifestContents:
    """Return the contents of a manifest; empty ones if it is malformed."""
    return parse_contents(manifest) or ManifestContents()


def shown(document: bytes) -> RawDocument:
    """Return a document as a page shows it.

    Indenting multiplies the length of what is deeply nested: 64 KiB can become 60 MB. So the length
    is counted first.
    """
    text, size = document[:MAX_SHOWN], len(document)
    is_indented = False
    if size <= MAX_SHOWN and indented_length(document) <= MAX_INDENTED:
        with suppress(ValueError, RecursionError):
            text, is_indented = msgspec.json.format(document, indent=_INDENT), True
    return RawDocument(text.decode("utf-8", "replace"), size, size <= MAX_SHOWN, is_indented)


def indented_length(document: bytes) -> int:
    """Return at least the length of a JSON document once it is indented.

    White space that it has already is counted too. A document that is no JSON has any length.
    """
    length, depth, is_text, is_escaped = len(document), 0, False, False
    for byte in document:
        if is_text:
            if is_escaped:
                is_escaped = False
            elif byte == _BACKSLASH:
                is_escaped = True
            elif byte == _QUOTE:
                is_text = False
        elif byte == _QUOTE:
            is_text = True
        elif byte in _OPENING:
            depth += 1
            length += 1 + _INDENT * depth
        elif byte in _CLOSING:
            depth = max(0, depth - 1)
            length += 1 + _INDENT * depth
        elif byte in _BETWEEN:
            length += 1 + _INDENT * depth
    return length


def layers_of(manifest: ManifestContents, configuration: Mapping[str, Any] | None) -> list[Layer]:
    """Return the layers, with their build steps if the history has exactly one for each."""
    history = configuration["history"] if configuration else []
    steps = [step["created_by"] for step in history if not step["empty_layer"]]
    layers = manifest.layers or []
    if len(steps) != len(layers):
        steps = [""] * len(layers)
    return [Layer(*pair) for pair in zip(layers, steps, strict=True)]
