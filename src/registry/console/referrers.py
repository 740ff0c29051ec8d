"""What is attached to an image, as a tree: signatures, SBOMs, attestations, and so on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from registry.console.visit import Visit

_DEPTH: Final = 4
_MOST: Final = 100
_PAGE: Final = 50

_KINDS: Final = (
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
"""What a type speaks of, by a part of its name; the first that fits."""
_BY_TAG: Final = {".sig": "Signature", ".att": "Attestation", ".sbom": "SBOM", "": "Referrers list"}
"""Endings of the tags by which older clients attach things."""


@dataclass
class Referrer:
    """A node of the tree."""

    kind: str
    artifact_type: str
    image: dict[str, Any]
    """A record of ``/v1``, or the part of one that is known."""
    referrers: list[Referrer] = field(default_factory=list)


def kind_of(artifact_type: str) -> str:
    """Return in a word what a type speaks of."""
    name = artifact_type.lower()
    return next((kind for part, kind in _KINDS if part in name), "Artifact")


async def read_tree(visit: Visit, images_path: str, digest: str) -> tuple[list[Referrer], bool]:
    """Return what is attached to an image, and whether that is all."""
    budget = [_MOST]
    tree = await _read(visit, images_path, digest, _DEPTH, budget)
    return tree, budget[0] > 0


async def _read(
    visit: Visit, images_path: str, digest: str, depth: int, budget: list[int]
) -> list[Referrer]:
    page = await visit.api.get(f"{images_path}/{digest}/referrers", limit=_PAGE)
    found = []
    for image in page["images"]:
        if budget[0] <= 0:
            break
        budget[0] -= 1
        named = image.get("artifact_type", image["media_type"])
        node = Referrer(kind_of(named), named, image)
        if depth > 1:
            node.referrers = await _read(visit, images_path, image["digest"], depth - 1, budget)
        found.append(node)
    if page["meta"]["has_more"]:
        budget[0] = 0
    return found


async def read_tagged(visit: Visit, tags_path: str, digest: str) -> list[Referrer]:
    """Return what older clients attached, by tags that spell the digest."""
    prefix = digest.replace(":", "-")
    page = await visit.api.get(tags_path, prefix=prefix, limit=20)
    return [
        Referrer(kind, f"tag {tag['name']}", {"digest": tag["digest"]})
        for tag in page["tags"]
        if (kind := _BY_TAG.get(tag["name"].removeprefix(prefix))) is not None
    ]
