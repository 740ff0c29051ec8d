"""``entrepot images referrers``: signatures, SBOMs and attestations as a tree."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from registry.cli.api import ApiClient, Record, open_client
from registry.cli.listing import add_full_digests
from registry.cli.options import Verbs, add_image, add_verb
from registry.cli.output import TABLE, printable, size_text, time_text, write_records
from registry.cli.references import image_path
from registry.cli.short_digests import shorten_digests

_DEEPEST: Final = 16
"""The most levels shown; each image of the tree costs a request."""


def add_parsers(verbs: Verbs) -> None:
    """Add ``referrers`` to the commands of images."""
    parser = add_verb(verbs, "referrers", _show_tree, "show what refers to an image, as a tree")
    add_image(parser)
    add_full_digests(parser)
    parser.add_argument(
        "--artifact-type", metavar="TYPE", help="only those about the image itself of this type"
    )


def _show_tree(options: argparse.Namespace) -> int:
    client = open_client(options)
    images, _, reference = image_path(client, options.image).rpartition("/")
    found = _referrers(client, images, reference, options.artifact_type)
    if options.output != TABLE:
        write_records(found, (), options.output)
        return 0
    for line in (printable(options.image), *_lines(found)):
        sys.stdout.write(f"{line if options.full_digests else shorten_digests(line)}\n")
    return 0


def _referrers(
    client: ApiClient, images: str, reference: str, artifact_type: str | None, depth: int = 1
) -> list[Record]:
    """Return the referrers of an image, each with its own under ``referrers``."""
    query = {"artifact_type": artifact_type}
    found = list(client.rows(f"{images}/{reference}/referrers", "images", query))
    for each in found:
        each["referrers"] = (
            _referrers(client, images, each["digest"], None, depth + 1) if depth < _DEEPEST else []
        )
    return found


def _lines(found: Sequence[Record], indent: str = "") -> Iterator[str]:
    for place, each in enumerate(found, start=1):
        is_last = place == len(found)
        what = printable(each.get("artifact_type") or each["media_type"])
        when, size = time_text(each["pushed_at"]), size_text(each["size_bytes"])
        yield f"{indent}{'└─' if is_last else '├─'} {what}  {each['digest']}  {size}  {when}"
        yield from _lines(each["referrers"], f"{indent}{'   ' if is_last else '│  '}")
