"""Names of resources: ids, CRNs, and the names and tags that accounts choose.

Ids are UUIDs, accepted in any case, stored and shown in lower case (RFC 9562 §4).

A CRN (cloud resource name) is ``crn:<service>:<region>:<account>:<type>/<name>``. It is split at
the first four colons, so the name may contain colons and slashes. Regional services have a region;
global ones (identity) leave it empty. Our responses always name the account by id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from cloudcore.errors import InvalidInput, invalid_field

UUID_PATTERN: Final = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""Not anchored; matches in linear time."""

_UUID: Final = re.compile(UUID_PATTERN)

Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
"""An id in a response, or in a request that is parsed by `parse_uuid`."""
UuidParameter = Annotated[
    str, Meta(pattern=f"^{UUID_PATTERN}$", max_length=36, extra_json_schema={"format": "uuid"})
]
"""A UUID in a query."""


def parse_uuid(text: str) -> str | None:
    """Return a UUID in lower case, or None if `text` is not one."""
    return text.lower() if _UUID.fullmatch(text) else None


def is_canonical_uuid(text: str) -> bool:
    """Return True if `text` is a UUID in lower case, as ids are stored."""
    return parse_uuid(text) == text


REGION_PATTERN: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
"""The names that a region may have. In a CRN, the region may also be empty."""

_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_REGION: Final = re.compile(r"[a-z0-9-]{0,63}")
_ACCOUNT: Final = re.compile(r"[a-z0-9-]{1,36}")
_NAME_IN_CRN: Final = re.compile(r"[!-~]{1,3200}")
"""The longest is of an object: the bucket's name, and a key of 1,024 bytes, percent-encoded."""
_PARTS: Final = 5
_IDS: Final = re.compile(rf"(?:\A|(?<=:)|(?<=:user/)|(?<=:organization/)){UUID_PATTERN}(?=:|\Z)")


class Crn(NamedTuple):
    """A CRN in its parts."""

    service: str
    region: str
    account: str
    type: str
    name: str

    def __str__(self) -> str:
        return f"crn:{self.service}:{self.region}:{self.account}:{self.type}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Crn:
        """Parse `text`; its account is the id in lower case, or a handle.

        Raise `InvalidInput` if it is not a CRN (``reason`` is ``malformed_crn``).
        """
        parts = text.split(":", 4)
        kind, slash, name = parts[-1].partition("/")
        account = parts[3] if len(parts) == _PARTS else ""
        if not _ACCOUNT.fullmatch(account):
            account = parse_uuid(account) or ""
        if (
            len(parts) != _PARTS
            or not slash
            or parts[0] != "crn"
            or not _WORD.fullmatch(parts[1])
            or not _REGION.fullmatch(parts[2])
            or not account
            or not _WORD.fullmatch(kind)
            or not _NAME_IN_CRN.fullmatch(name)
        ):
            raise InvalidInput(
                "a resource name is crn:<service>:<region>:<account>:<type>/<name>",
                reason="malformed_crn",
            )
        return cls(parts[1], parts[2], account, kind, name)


def lower_ids(text: str) -> str:
    """Return an id, a CRN or a pattern of CRNs with its ids in lower case.

    Ids are the account and the part after ``user/`` or ``organization/``; names are unchanged.
    """
    return _IDS.sub(lambda found: found[0].lower(), text)


MAX_TAGS: Final = 50
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def is_name(name: str) -> bool:
    """Return True if a resource may have this name; a valid name never looks like an id."""
    return _NAME.fullmatch(name) is not None and parse_uuid(name) is None


def with_article(noun: str) -> str:
    """Prepend the indefinite article to a noun: ``an IP pool``."""
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"


def check_name(name: str) -> None:
    """Raise `InvalidInput` if a name is malformed."""
    if not is_name(name):
        raise invalid_field(
            "name", "1 to 63 of a-z 0-9 . _ -, begins with a letter or digit and is no UUID"
        )


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise `InvalidInput` for too many or too long tags, or tags with control characters."""
    if len(tags) > MAX_TAGS:
        raise invalid_field("tags", f"at most {MAX_TAGS}", "out_of_range")
    for name, value in tags.items():
        if not 1 <= len(name) <= 128 or len(value) > 256 or _CONTROL.search(name + value):
            raise invalid_field(
                "tags",
                "a key of 1 to 128 characters and a value of at most 256, none of them a "
                f"control character: {name[:128]!a}",
            )
