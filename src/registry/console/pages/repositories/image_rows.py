"""Rows of a list of images: kinds, attached artifacts, and images folded into another's row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from registry.console.page_request import PageRequest

_DEPTH: Final = 4
_MOST: Final = 100
_PAGE: Final = 50

_KINDS: Final = (
    ("helm", "Helm chart"),
    ("sbom", "SBOM"),
    ("spdx", "SBOM"),
    ("cyclonedx", "SBOM"),
    ("syft", "SBOM"),
    ("in-toto", "Attestation"),
    ("slsa", "Attestation"),
    ("attest", "Attestation"),
    ("dsse", "Attestation"),
    ("sigstore.bundle", "Signature"),
    ("signature", "Signature"),
    (".sig", "Signature"),
    ("sarif", "Scan report"),
    ("vuln", "Scan report"),
    ("scan", "Scan report"),
)
"""Parts of artifact types and the kind of artifact they mean; the first match counts."""
BY_TAG: Final = {".sig": "Signature", ".att": "Attestation", ".sbom": "SBOM", "": "Referrers list"}
"""Maps suffixes of the tags by which older clients attach artifacts to the kinds of artifacts."""


@dataclass
class AttachedArtifact:
    """An artifact that is attached to another image."""

    kind: str
    artifact_type: str
    image: dict[str, Any]
    """The image as ``/v1`` returns it, or some of its fields."""
    referrers: list[AttachedArtifact] = field(default_factory=list)


def kind_of(artifact_type: str) -> str:
    """Return the kind of an artifact type, for display."""
    name = artifact_type.lower()
    return next((kind for part, kind in _KINDS if part in name), "Artifact")


async def read_tree(
    page: PageRequest, images_path: str, digest: str
) -> tuple[list[AttachedArtifact], bool]:
    """Return the tree of artifacts attached to an image, and True if the tree is complete.

    A complete tree has all artifacts down to the level `_DEPTH`.
    """
    budget = [_MOST]
    tree = await _read(page, images_path, digest, _DEPTH, budget)
    return tree, budget[0] > 0


async def _read(
    page: PageRequest, images_path: str, digest: str, depth: int, budget: list[int]
) -> list[AttachedArtifact]:
    answer = await page.api.get(f"{images_path}/{digest}/referrers", limit=_PAGE)
    found = []
    for image in answer["images"]:
        if budget[0] <= 0:
            break
        budget[0] -= 1
        named = image.get("artifact_type", image["media_type"])
        node = AttachedArtifact(kind_of(named), named, image)
        if depth > 1:
            node.referrers = await _read(page, images_path, image["digest"], depth - 1, budget)
        found.append(node)
    if answer["meta"]["has_more"]:
        budget[0] = 0
    return found


async def read_tagged(page: PageRequest, tags_path: str, digest: str) -> list[AttachedArtifact]:
    """Return the artifacts that older clients attached to an image, by tags made of its digest."""
    prefix = digest.replace(":", "-")
    answer = await page.api.get(tags_path, prefix=prefix, limit=20)
    return [
        AttachedArtifact(kind, f"tag {tag['name']}", {"digest": tag["digest"]})
        for tag in answer["tags"]
        if (kind := BY_TAG.get(tag["name"].removeprefix(prefix))) is not None
    ]


_ATTACHED_TAG: Final = re.compile(r"sha256-[0-9a-f]{64}(\.[a-z]+)?")
_DIGITS: Final = re.compile(r"([0-9]+)")
_ATTACHED: Final = {
    "Signature": "has a signature",
    "SBOM": "has an SBOM",
    "Attestation": "has an attestation",
    "Scan report": "has a scan report",
}
"""Maps kinds of attached artifacts to words about the image. The artifacts are not verified:
whoever may push can attach an artifact of any type."""
_CONFIGURATIONS: Final = frozenset(
    {"application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"}
)
"""Artifact types of container images; images with other types are other artifacts."""


class ListedImage(NamedTuple):
    """An image in a list."""

    image: Mapping[str, Any]
    kind: str
    tags: list[str]
    """In natural order: 1.9 before 1.10."""
    attached: list[str]
    """Words from `_ATTACHED`."""


class FoldedImages(NamedTuple):
    """The rows of a page, and how many images are folded into other images' rows."""

    rows: list[ListedImage]
    parts: int
    """Number of folded images that an index lists."""
    attached: int
    """Number of folded signatures and other artifacts that belong to an image."""


def kind_of_image(image: Mapping[str, Any]) -> str:
    """Return the kind of an image, for display."""
    if image["is_index"]:
        return "Multi-platform"
    named = image.get("artifact_type")
    return "Image" if named is None or named in _CONFIGURATIONS else kind_of(named)


def row_of(image: Mapping[str, Any]) -> ListedImage:
    """Return the row of an image read with ``include=relations``."""
    kinds = {kind_of(each) for each in image["attached_types"]}
    kinds |= {BY_TAG[suffix_of(tag)] for tag in image["attached_tags"] if suffix_of(tag) in BY_TAG}
    attached = [words for kind, words in _ATTACHED.items() if kind in kinds]
    return ListedImage(image, kind_of_image(image), natural_order(image["tags"]), attached)


def fold(images: Iterable[Mapping[str, Any]], *, everything: bool = False) -> FoldedImages:
    """Return rows for the images that belong to no other image; with `everything`, for all."""
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
    """Return what follows the digest in an attached tag, such as ``.sig``, or an empty string."""
    return tag[len("sha256-") + 64 :]


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names so that numbers in them compare as numbers."""
    return sorted(names, key=natural_key)


def natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return the sort key of `natural_order`; numbers come before letters."""
    parts = [part for part in _DIGITS.split(name) if part]
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts], name
