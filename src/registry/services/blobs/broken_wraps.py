"""Log wrapped data keys that do not open, once for each."""

from __future__ import annotations

import logging
from typing import Final

from registry.metadata.blobs.objects import Link

MOST_LOGGED: Final = 10_000
"""Wraps that are remembered; then all are forgotten."""

_log = logging.getLogger("registry.services.blobs.reading")  # the name operators filter by


class BrokenWraps:
    """The broken wraps, by stored id and KMS key, that a process has logged."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str | None]] = set()

    def log(self, link: Link) -> None:
        """Log that the wrap of a link does not open, unless that was logged before."""
        wrap = link.stored_id, link.kms_key_id
        if wrap in self._logged:
            return
        if len(self._logged) >= MOST_LOGGED:
            self._logged.clear()
        self._logged.add(wrap)
        _log.error(
            "the wrapped data key of blob %s does not open under KMS key %s: its row was changed. "
            "Clients get 404 until the blob is pushed again",
            link.digest,
            link.kms_key_id,
        )
