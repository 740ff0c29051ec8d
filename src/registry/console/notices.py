"""The notices that pages show after a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NOTICES: Final[Mapping[str, str]] = {
    "repository-created": "The repository is there. Push to it with the lines below.",
    "repository-deleted": "The repository was deleted. What can be restored is listed here.",
    "repository-restored": "The repository is back, with all it held.",
    "image-deleted": "The image was deleted. What can be restored is listed here.",
    "image-restored": "The image is back.",
    "tag-moved": "The tag was moved.",
    "tag-created": "The tag was created.",
    "tag-deleted": "The tag was deleted; its image stays. What can be restored is listed here.",
    "tag-restored": "The tag is back.",
    "pinned": "The image is pinned: no lifecycle rule expires it.",
    "unpinned": "The pin was taken away.",
    "policy-saved": "The policy was saved.",
    "policy-deleted": "The policy was deleted.",
    "run-started": "A run has begun.",
    "settings-saved": "The settings were saved.",
    "rule-created": "The rule was created.",
    "rule-deleted": "The rule was deleted.",
    "collection-started": "A run of the collector has started.",
    "sign-in-over": "Your sign-in had ended. If you sent a form, sign in and send it again.",
}
"""Texts by the name in the page's address, so that the address cannot contain a text."""
