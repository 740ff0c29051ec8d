"""Names of repositories and tags, and the reference that is a tag or a digest."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from registry.errors import NameInvalid, TagInvalid
from registry.oci.digest import Digest

MAX_NAME_LENGTH: Final = 213
"""Clients cap host and name together at 255 characters; this leaves room for the host."""

_HANDLE: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG: Final = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")


class Name(NamedTuple):
    """A full repository name: the account's handle and the repository within the account."""

    handle: str
    repository: str

    def __str__(self) -> str:
        return f"{self.handle}/{self.repository}"


def parse_name(text: str) -> Name:
    """Return `text` as ``<account handle>/<repository>``, the repository nested at will.

    Raises:
        NameInvalid: wrong grammar (OCI name regex), a lone component, or over the length.

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
    """Say whether `text` follows the tag grammar (distribution-spec, "Pulling manifests")."""
    return _TAG.fullmatch(text) is not None


def parse_tag(text: str) -> str:
    """Return `text` when it is a tag.

    Raises:
        TagInvalid: wrong grammar or longer than 128 characters.

    """
    if not is_tag(text):
        raise TagInvalid(
            "a tag is 1 to 128 of letters, digits, '_', '.' and '-', not beginning with '.' or '-'",
            tag=text[:160],
        )
    return text


def parse_reference(text: str) -> str | Digest:
    """Return `text` as a digest when it holds a colon, else as a tag.

    Raises:
        DigestInvalid: it holds a colon and is no digest.
        TagInvalid: it holds none and is no tag.

    """
    if ":" in text:
        return Digest.parse(text)
    return parse_tag(text)
