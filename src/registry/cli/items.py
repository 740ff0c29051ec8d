"""The items of commands that take many: tags and digests of one repository, in any form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from registry.cli.api import ApiClient
from registry.cli.failure import Misuse
from registry.cli.references import (
    check_tag,
    is_id,
    is_image,
    parse_typed_reference,
    tag_path,
)
from registry.cli.short_digests import is_short_digest
from registry.cli.transport import RequestRefused


class Items(NamedTuple):
    """Images, and tags without their images."""

    digests: list[str]
    tags: list[str]


def items_in(repository: str, texts: Iterable[str]) -> list[str]:
    """Return the tags and digests that texts name, which may repeat the repository.

    Raises:
        Misuse: one is of another repository, or malformed.

    """
    return [_item_in(repository, text) for text in texts]


def _item_in(repository: str, text: str) -> str:
    if is_image(text) or is_short_digest(text) or not {":", "@"} & set(text):
        return text
    reference = parse_typed_reference(text)
    if reference.repository != repository:
        raise Misuse(
            f"{text!r} is of another repository than {repository!r}; name those of one at a time"
        )
    item = reference.digest or reference.tag
    if item is None:
        raise Misuse(f"{text!r} names neither tag nor digest")
    return item


def find_items(client: ApiClient, repository: str, items: Iterable[str]) -> Items:
    """Return the items of the repository at a path as digests and tags.

    A text that may be a tag or a short digest is the tag if there is one.

    Raises:
        Misuse: one is neither.
        RequestRefused: a short digest belongs to several images.

    """
    found = Items([], [])
    for item in items:
        digest = _digest_of(client, repository, item)
        if digest is None:
            found.tags.append(check_tag(item))
        else:
            found.digests.append(digest)
    return found


def _digest_of(client: ApiClient, repository: str, item: str) -> str | None:
    """Return the digest of the image that an item names; None if it is a tag."""
    if is_image(item) and not is_id(item):
        return item
    if not is_id(item) and not is_short_digest(item):
        return None
    is_certain = is_id(item) or ":" in item
    if not is_certain and _is_tag(client, repository, item):
        return None
    try:
        digest: str = client.call("GET", f"{repository}/images/{item}")["image"]["digest"]
    except RequestRefused as error:
        if error.status != 404 or is_certain:
            raise
        return None
    return digest


def _is_tag(client: ApiClient, repository: str, text: str) -> bool:
    try:
        client.call("GET", tag_path(repository, text))
    except RequestRefused as error:
        if error.status != 404:
            raise
        return False
    return True
