"""``entrepot images manifest``: the descriptors in the manifest of an image."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from registry.cli.api import Record, open_client
from registry.cli.listing import add_full_digests, show_rows
from registry.cli.options import Verbs, add_image, add_verb
from registry.cli.output import TABLE, column, size_text, write_record
from registry.cli.references import image_path

_PARTS: Final = {
    "subject": "subject",
    "config": "config",
    "manifests": "manifest",
    "layers": "layer",
    "blobs": "blob",
}
"""The fields of a manifest that hold descriptors, and the name of each as a part."""

_COLUMNS: Final = (
    column("PART", "part"),
    column("PLATFORM", "platform"),
    column("SIZE", "size", size_text, is_number=True),
    column("DIGEST", "digest", is_whole=True, has_digests=True),
    column("MEDIA TYPE", "mediaType"),
)


def add_parsers(verbs: Verbs) -> None:
    """Add ``manifest`` to the commands of images."""
    words = "show what an image is made of; with --output json its manifest, byte by byte"
    parser = add_verb(verbs, "manifest", _show, words)
    add_image(parser)
    add_full_digests(parser)


def _show(options: argparse.Namespace) -> int:
    client = open_client(options)
    text = client.fetch(f"{image_path(client, options.image)}/manifest")
    if options.output == "json":
        # Print the exact bytes: they hash to the image's digest.
        sys.stdout.buffer.write(text)
        return 0
    document = msgspec.json.decode(text, type=dict[str, Any])
    if options.output == TABLE:
        show_rows(options, _descriptors(document), _COLUMNS)
    else:
        write_record(document, options.output)
    return 0


def _descriptors(document: dict[str, Any]) -> Iterator[Record]:
    """Yield the descriptors of a manifest; the registry checked their form at the push."""
    for name, part in _PARTS.items():
        found = document.get(name) or []
        for each in found if isinstance(found, list) else [found]:
            platform = each.get("platform") or {}
            shown = [platform.get(field) for field in ("os", "architecture", "variant")]
            yield {**each, "part": part, "platform": "/".join(map(str, filter(None, shown)))}
