"""Names and tags that accounts give their resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cloudcore.errors import InvalidInput
from cloudcore.uuids import parse_uuid

MAX_TAGS: Final = 50
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def is_name(name: str) -> bool:
    """Return True if a resource can have this name; it never looks like an id."""
    return _NAME.fullmatch(name) is not None and parse_uuid(name) is None


def with_article(noun: str) -> str:
    """Return ``an IP pool`` for ``IP pool``."""
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"


def check_name(name: str) -> None:
    """Refuse a malformed name."""
    if not is_name(name):
        raise InvalidInput(
            "name: 1 to 63 of a-z 0-9 . _ -, begins with a letter or digit and is no UUID",
            field="name",
            reason="malformed",
        )


def check_tags(tags: Mapping[str, str]) -> None:
    """Refuse too many tags, tags that are too long, or tags with control characters."""
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"tags: at most {MAX_TAGS}", field="tags", reason="out_of_range")
    for name, value in tags.items():
        if not 1 <= len(name) <= 128 or len(value) > 256 or _CONTROL.search(name + value):
            raise InvalidInput(
                "tags: a key of 1 to 128 characters and a value of at most 256, none of them a "
                f"control character: {name[:128]!a}",
                field="tags",
                reason="malformed",
            )
