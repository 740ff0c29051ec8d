"""Repositories, images and CRNs as people write them, and paths on ``/v1``.

app   team/app   acme/team/app   registry.example.com/acme/team/app   <id of a repository>
app:1.0   app@sha256:…   app@<id of an image>   app:1.0@sha256:… (the digest counts)
app@1234567890ab   app@sha256:123456 (the beginning of one digest alone)

A CRN may name the caller's account by its id or by its handle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

from cloudcore.command_failures import Missing, Misuse, RequestRefused
from cloudcore.commands.client import ApiCalls
from cloudcore.commands.records import printable
from cloudcore.resource_names import parse_uuid
from registry.cli.client.api import ApiClient, Record
from registry.errors import DigestInvalid
from registry.oci.digest import Digest
from registry.oci.reference import is_tag

_SHORT: Final = re.compile(r"(?:sha256:)?[0-9a-f]{6,63}")
_NAME_PARTS: Final = 2
"""Maximum number of components before a repository's name: host and account."""


class TypedReference(NamedTuple):
    """A parsed reference."""

    repository: str
    """As written: a name, with or without host and account, or an id."""
    tag: str | None = None
    digest: str | None = None
    """A digest, the beginning of a digest, or the id of an image."""


def parse_typed_reference(text: str) -> TypedReference:
    """Parse a repository or image reference.

    Raise `Misuse` if the repository is missing, or the tag or digest is malformed.
    """
    name, at, digest = text.partition("@")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # the colon of a port
        head, tag = name, ""
    if name.endswith(":"):
        raise Misuse(f"no tag follows the colon of {printable(text)!r}")
    if not head:
        raise Misuse(f"no repository is named in {printable(text)!r}")
    if at and not (is_digest_or_id(digest) or is_short_digest(digest)):
        raise Misuse(
            f"what follows the @ is no digest: {printable(digest)!r}; "
            "write six hex digits of it or more, in lower case"
        )
    return TypedReference(head, check_tag(tag) if tag else None, digest or None)


def is_digest_or_id(text: str) -> bool:
    """Return True if a text has the form of a digest or of an image id."""
    try:
        Digest.parse(text)
    except DigestInvalid:
        return is_id(text)
    return True


def is_short_digest(text: str) -> bool:
    """Return True if a text may be the beginning of a sha256; a tag may look the same."""
    return _SHORT.fullmatch(text) is not None


def is_id(text: str) -> bool:
    """Return True if a text is a UUID."""
    return parse_uuid(text) is not None


def check_tag(text: str) -> str:
    """Return `text` if it is a valid tag, else raise `Misuse`."""
    if not is_tag(text):
        raise Misuse(
            f"{printable(text)!r} is no tag: 1 to 128 letters, digits, '_', '.' and '-', "
            "not beginning with '.' or '-'"
        )
    return text


def repository_path(client: ApiClient, written: str) -> str:
    """Return a repository's API path; a repository of another account must be named by its id."""
    if is_id(written):
        return f"/v1/repositories/{written}"
    return f"/v1/repositories/{find_repository(client, written)['id']}"


def find_repository_crn(client: ApiCalls, name: str) -> str:
    """Return the CRN of a repository; if there is none with this name, the CRN it would have."""
    assert isinstance(client, ApiClient)
    try:
        return str(find_repository(client, name)["crn"])
    except Missing:
        answer = client.call("GET", "/v1/policy-templates", query={"names": name})
    return str(answer["policy_templates"][0]["document"]["statements"][0]["resources"][0])


def find_repository(client: ApiClient, written: str) -> Record:
    """Return a repository of the account by its name or id.

    Raise `Misuse` if the text names an image; `Missing` if there is no such repository.
    """
    if set(":@") & set(written.rpartition("/")[2]):
        raise Misuse(f"a repository is named without tag or digest, not {printable(written)!r}")
    if is_id(written):
        found: Record = client.call("GET", f"/v1/repositories/{written}")["repository"]
        return found
    full = written.removeprefix(f"{client.host}/")
    refused = None
    # Names may be nested, so the first component may be part of the name or the account.
    for skipped in range(0 if full == written else 1, _NAME_PARTS + 1):
        parts = full.split("/", skipped)
        if len(parts) <= skipped:
            break
        try:
            rows = client.call("GET", "/v1/repositories", query={"name": parts[skipped]})
        except RequestRefused as error:
            refused = refused or error
            continue
        for row in rows["repositories"]:
            is_full = not skipped or f"/{row['uri']}".endswith(f"/{full}")
            if row["name"] == parts[skipped] and is_full:
                return dict(row)
    if refused is not None:
        raise refused
    raise Missing(
        f"the account has no repository {printable(written)!r}; "
        "'entrepot repositories list' shows those it has, and one of another account goes by its id"
    )


def image_path(client: ApiClient, written: str) -> str:
    """Return the path of an image that is written as ``REPO:TAG`` or ``REPO@DIGEST``.

    Raise `Misuse` if the text has neither tag nor digest, `Missing` if there is no such repository
    or tag.
    """
    reference = parse_typed_reference(written)
    if reference.digest is None and reference.tag is None:
        raise Misuse(f"which image of {printable(written)}? write REPO:TAG or REPO@DIGEST")
    path = repository_path(client, reference.repository)
    return f"{path}/images/{digest_of(client, path, reference)}"


def digest_of(client: ApiClient, path: str, reference: TypedReference) -> str:
    """Return the digest of a reference; `path` is the API path of its repository.

    An image id is returned unchanged. Raise `Missing` if there is no such tag.
    """
    if reference.digest is not None:
        return full_digest(client, path, reference.digest)
    assert reference.tag is not None
    try:
        digest: str = client.call("GET", tag_path(path, reference.tag))["tag"]["digest"]
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise Missing(missing_tag_text(reference)) from None
    return digest


def full_digest(client: ApiClient, repository: str, digest: str) -> str:
    """Complete a short digest; return other texts unchanged. `repository` is an API path.

    Raise `RequestRefused` if no image, or more than one, has a digest that begins with it.
    """
    if not is_short_digest(digest):
        return digest
    found: str = client.call("GET", f"{repository}/images/{digest}")["image"]["digest"]
    return found


def tag_path(repository: str, tag: str) -> str:
    """Return the API path of a tag, below that of its repository."""
    return f"{repository}/tags/{quote(tag, safe='')}"


def missing_tag_text(reference: TypedReference) -> str:
    """Return the message for a missing tag."""
    return (
        f"there is no tag {reference.tag!r} in {reference.repository}; "
        f"'entrepot tags list {reference.repository}' shows those there are"
    )


def parse_item_arguments(first: str, others: Iterable[str]) -> tuple[TypedReference, list[str]]:
    """Return the reference in the first argument, and all tags and digests in the arguments.

    Raise `Misuse` if an argument is malformed, or names another repository.
    """
    reference = parse_typed_reference(first)
    items = parse_items(reference.repository, others)
    own = reference.digest or reference.tag
    return reference, [own, *items] if own else items


def check_item(text: str) -> None:
    """Raise `Misuse` unless a text is a digest, a short digest, an id or a tag."""
    if not is_digest_or_id(text) and not is_short_digest(text):
        check_tag(text)


def parse_items(repository: str, texts: Iterable[str]) -> list[str]:
    """Return the tags and digests that the texts name; a text may repeat the repository.

    Raise `Misuse` if a text names another repository, or is malformed.
    """
    return [_item_in(repository, text) for text in texts]


def _item_in(repository: str, text: str) -> str:
    if is_digest_or_id(text) or is_short_digest(text) or not {":", "@"} & set(text):
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


def find_items(
    client: ApiClient, repository: str, items: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Sort items of a repository into digests and tags; `repository` is an API path.

    A text that may be a tag or a short digest is the tag if such a tag exists. Raise `Misuse` if a
    text is neither; `RequestRefused` if a short digest belongs to several images.
    """
    digests, tags = [], []
    for item in items:
        digest = _digest_of(client, repository, item)
        if digest is None:
            tags.append(check_tag(item))
        else:
            digests.append(digest)
    return digests, tags


def _digest_of(client: ApiClient, repository: str, item: str) -> str | None:
    """Return the digest of the image that an item names; None if the item is a tag."""
    if is_digest_or_id(item) and not is_id(item):
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
