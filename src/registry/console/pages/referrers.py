"""Read the tree of artifacts attached to an image: signatures, SBOMs, attestations and others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

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
"""Kinds of artifacts, by a part of the artifact type; the first match counts."""
BY_TAG: Final = {".sig": "Signature", ".att": "Attestation", ".sbom": "SBOM", "": "Referrers list"}
"""Suffixes of the tags by which older clients attach artifacts."""


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
    """Return the artifacts attached to an image, and True if these are all to the depth shown."""
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
    """Return the artifacts that older clients have attached by tags made of the digest."""
    prefix = digest.replace(":", "-")
    answer = await page.api.get(tags_path, prefix=prefix, limit=20)
    return [
        AttachedArtifact(kind, f"tag {tag['name']}", {"digest": tag["digest"]})
        for tag in answer["tags"]
        if (kind := BY_TAG.get(tag["name"].removeprefix(prefix))) is not None
    ]
