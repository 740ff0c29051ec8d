"""What the tags of images tell the rules: which of them select an image, and what it is about.

Clients that know no ``subject`` say by a tag what a signature or an SBOM is about: the digest of
the image, its colon written as ``-``, alone (image-spec's referrers tag schema) or with an ending
such as ``.sig`` (cosign). For lifecycle rules such an image is a referrer like any other, so that
a signature neither goes before what it signs nor counts among the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cloudcore.db.base import Row
from registry.metadata.lifecycle.images import ImageColumns
from registry.services.lifecycle.rules import LifecyclePolicy

_DIGEST_TAG: Final = re.compile(r"(sha256)-([0-9a-f]{64})(?:\..+)?")


class SubjectImage(NamedTuple):
    """What an image is about."""

    id: str | None
    """When the repository has it."""
    digest: str | None
    is_held: bool = False
    """It is about several images, or has a name of its own too: it is held, but follows none."""


class Tagging:
    """The tags of some images, as far as rules look at them."""

    def __init__(self, policy: LifecyclePolicy) -> None:
        self._policy = policy
        self._found: dict[str, tuple[int, int]] = {}
        self._named: dict[str, list[str]] = {}
        self._present: dict[str, str] = {}

    def note(self, tags: Iterable[Row]) -> list[str]:
        """Take in rows of a tag's name, its image, and when it was pointed there.

        Returns the digests that the names tell; `note_present` is to be told which are there.
        """
        digests = []
        for name, image, moved_at in tags:
            rules, newest = self._found.get(image, (0, 0))
            self._found[image] = (rules | self._policy.of_tag(name), max(newest, moved_at))
            if match := _DIGEST_TAG.fullmatch(name):
                digests.append(":".join(match.groups()))
                self._named.setdefault(image, []).append(digests[-1])
        return digests

    def note_present(self, ids: Mapping[str, str]) -> None:
        """Take in the ids of images by their digests."""
        self._present.update(ids)

    def of(self, image: str) -> tuple[int, int]:
        """Return the rules that select an image for its tags, and when the last tag came."""
        return self._found.get(image, (self._policy.of_any, 0))

    def subject_of(self, image: ImageColumns) -> SubjectImage:
        """Return what an image is about: by its manifest, else by its tags."""
        named = self._named.get(image.id)
        if named is None or image.subject_digest is not None:
            return SubjectImage(image.subject_id, image.subject_digest)
        present = {self._present[each] for each in named if each in self._present} - {image.id}
        if len(set(named)) > 1 or len(named) != image.tag_count:
            return SubjectImage(None, None, is_held=bool(present))
        return SubjectImage(next(iter(present), None), named[0])
