"""Find the rules that the tags of an image match, and the subject that a signature's tag names.

Clients without support for ``subject`` name the subject of a signature or an SBOM in its tag: the
digest of the image with ``-`` for the colon, alone (image-spec, referrers tag schema) or with a
suffix such as ``.sig`` (cosign). Lifecycle rules treat such an image as a referrer, so that a
signature neither expires before the image it signs nor counts among the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cloudcore.db.base import Row
from registry.metadata.lifecycle.images import ImageColumns
from registry.services.lifecycle.rules import CompiledPolicy

_DIGEST_TAG: Final = re.compile(r"(sha256)-([0-9a-f]{64})(?:\..+)?")


class SubjectImage(NamedTuple):
    """The subject of an image."""

    id: str | None
    """Its id, if the repository has it."""
    digest: str | None
    is_held: bool = False
    """The image names several subjects, or has other tags too: it is held while one of them exists,
    but does not expire with any."""


class Tagging:
    """The tags of some images, reduced to what the rules need."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._policy = policy
        self._found: dict[str, tuple[int, int]] = {}
        self._named: dict[str, list[str]] = {}
        self._present: dict[str, str] = {}

    def note(self, tags: Iterable[Row]) -> list[str]:
        """Add rows of a tag's name, its image's id, and the time it was pointed there.

        Return the digests in the names; pass those that exist to `note_present`.
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
        """Add the ids of existing images by their digests."""
        self._present.update(ids)

    def of(self, image: str) -> tuple[int, int]:
        """Return the rules that select an image by its tags, and the time it last got a tag."""
        return self._found.get(image, (self._policy.of_any, 0))

    def subject_of(self, image: ImageColumns) -> SubjectImage:
        """Return the subject of an image: that of its manifest, or the one that its tags name."""
        named = self._named.get(image.id)
        if named is None or image.subject_digest is not None:
            return SubjectImage(image.subject_id, image.subject_digest)
        present = {self._present[each] for each in named if each in self._present} - {image.id}
        if len(set(named)) > 1 or len(named) != image.tag_count:
            return SubjectImage(None, None, is_held=bool(present))
        return SubjectImage(next(iter(present), None), named[0])
