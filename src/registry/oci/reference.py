"""Grammars of repository names, tags, and references, which are tags or digests."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from registry.errors import NameInvalid, TagInvalid
from registry.oci.digest import Digest

MAX_NAME_LENGTH: Final = 213
"""Maximum characters of a full name. Clients allow 255 for host and name together."""

_HANDLE: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY_PATTERN: Final = rf"{_COMPONENT}(?:/{_COMPONENT})*"
"""Regular expression of a repository's name within its account."""
_REPOSITORY: Final = re.compile(REPOSITORY_PATTERN)
_TAG: Final = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")


class Name(NamedTuple):
    """A full repository name: the account's handle and the repository within the account."""

    handle: str
    repository: str

    def __str__(self) -> str:
        return f"{self.handle}/{self.repository}"


def parse_name(text: str) -> Name:
    """Parse ``<account handle>/<repository>``; the repository may have any number of components.

    Raise `NameInvalid` if `text` does not match the OCI name regex, has one component, or is
    too long.
    """
    handle, slash, repository = text.partition("/")
    if (
        not slash
        or len(text) > MAX_NAME_LENGTH
        or not 2 <= len(handle) <= 32
        or not _HANDLE.fullmatch(handle)
        or not _REPOSITORY.fullmatch(repository)
    ):
        raise NameInvalid(
            "a name is <account>/<repository> in lower-case letters, digits and single separators, "
            f"at most {MAX_NAME_LENGTH} characters",
            name=text[:256],
        )
    return Name(handle, repository)


def is_tag(text: str) -> bool:
    """Return True if `text` is a valid tag (distribution-spec, "Pulling manifests")."""
    return _TAG.fullmatch(text) is not None


def parse_tag(text: str) -> str:
    """Return `text` if it is a valid tag, or raise TagInvalid."""
    if not is_tag(text):
        raise TagInvalid(
            "a tag is 1 to 128 of letters, digits, '_', '.' and '-', not beginning with '.' or '-'",
            tag=text[:160],
        )
    return text


def parse_reference(text: str) -> str | Digest:
    """Parse `text` as a digest if it contains a colon, else as a tag.

    Raises:
        DigestInvalid: `text` contains a colon, but is not a digest.
        TagInvalid: `text` contains no colon, and is not a tag.

    """
    if ":" in text:
        return Digest.parse(text)
    return parse_tag(text)
