"""Rows of image lists: what is shown of each image, and which are folded under another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from registry.console.pages.referrers import BY_TAG, kind_of

_ATTACHED_TAG: Final = re.compile(r"sha256-[0-9a-f]{64}(\.[a-z]+)?")
_DIGITS: Final = re.compile(r"([0-9]+)")
_ATTACHED: Final = {
    "Signature": "has a signature",
    "SBOM": "has an SBOM",
    "Attestation": "has an attestation",
    "Scan report": "has a scan report",
}
"""Words for an image, by the kind of what is attached to it. Nothing verifies that here:
whoever may push can attach an artifact of any type."""
_CONFIGURATIONS: Final = frozenset(
    {
        "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.container.image.v1+json",
    }
)
"""Artifact types of container images; any other is the type of another artifact."""


class ImageRow(NamedTuple):
    """An image of a list."""

    image: Mapping[str, Any]
    kind: str
    tags: list[str]
    """In natural order: 1.9 before 1.10."""
    attached: list[str]
    """Of `_ATTACHED`."""


class FoldedImages(NamedTuple):
    """The rows of a page, and how many images of it are folded."""

    rows: list[ImageRow]
    parts: int
    """Images that an index lists."""
    attached: int
    """Signatures and other artifacts that belong to an image."""


def kind_of_image(image: Mapping[str, Any]) -> str:
    """Return what an image is, for display."""
    if image["is_index"]:
        return "Multi-platform"
    named = image.get("artifact_type")
    return "Image" if named is None or named in _CONFIGURATIONS else kind_of(named)


def row_of(image: Mapping[str, Any]) -> ImageRow:
    """Return the row of an image that was read with ``include=relations``."""
    kinds = {kind_of(each) for each in image["attached_types"]}
    kinds |= {BY_TAG[suffix_of(tag)] for tag in image["attached_tags"] if suffix_of(tag) in BY_TAG}
    attached = [words for kind, words in _ATTACHED.items() if kind in kinds]
    return ImageRow(image, kind_of_image(image), natural(image["tags"]), attached)


def fold(images: Iterable[Mapping[str, Any]], *, everything: bool = False) -> FoldedImages:
    """Return the rows of images that belong to no other; of all with `everything`."""
    rows, parts, attached = [], 0, 0
    for image in images:
        own = [tag for tag in image["tags"] if not is_attached_tag(tag)]
        if everything or own:
            rows.append(row_of(image))
        elif image["tags"] or "subject" in image:
            attached += 1
        elif image["listed_by"]:
            parts += 1
        else:
            rows.append(row_of(image))
    return FoldedImages(rows, parts, attached)


def is_attached_tag(tag: str) -> bool:
    """Return True for a tag by which an older client attached an artifact to an image."""
    return _ATTACHED_TAG.fullmatch(tag) is not None


def suffix_of(tag: str) -> str:
    """Return the end of such a tag, which tells the kind of the artifact: ``.sig``, or nothing."""
    return tag[len("sha256-") + 64 :]


def natural(names: Iterable[str]) -> list[str]:
    """Return names sorted with their numbers compared as numbers."""
    return sorted(names, key=natural_key)


def natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return the key by which names are sorted naturally; numbers come before letters."""
    parts = [part for part in _DIGITS.split(name) if part]
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts], name
