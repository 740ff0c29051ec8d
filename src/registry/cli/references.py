"""Repositories and images as people write them, and where they stand in ``/v1``.

app   team/app   acme/team/app   registry.example.com/acme/team/app   <id of a repository>
app:1.0   app@sha256:…   app@<id of an image>   app:1.0@sha256:… (the digest counts)
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote

from cloudcore.uuids import parse_uuid
from registry.cli.api import ApiClient, Record
from registry.cli.failure import Missing, Misuse
from registry.cli.output import printable
from registry.cli.transport import RequestRefused
from registry.errors import DigestInvalid
from registry.oci.digest import Digest
from registry.oci.reference import is_tag

_NAME_PARTS: Final = 2
"""How many components may stand before a repository's name: host and account."""


class TypedReference(NamedTuple):
    """A reference taken apart."""

    repository: str
    """As it was written."""
    tag: str | None = None
    digest: str | None = None
    """Or the id of an image."""


def parse_typed_reference(text: str) -> TypedReference:
    """Return a reference taken apart, its syntax checked.

    Raises:
        Misuse: tag or digest are none.

    """
    name, at, digest = text.partition("@")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # the colon of a port
        head, tag = name, ""
    if name.endswith(":"):
        raise Misuse(f"no tag follows the colon of {printable(text)!r}")
    if not head:
        raise Misuse(f"no repository is named in {printable(text)!r}")
    if at and not is_image(digest):
        raise Misuse(f"what follows the @ is no digest: {printable(digest)!r}; write all of it")
    return TypedReference(head, check_tag(tag) if tag else None, digest or None)


def is_image(text: str) -> bool:
    """Say whether a text is a digest, or the id of an image."""
    try:
        Digest.parse(text)
    except DigestInvalid:
        return is_id(text)
    return True


def is_id(text: str) -> bool:
    """Say whether a text is the id of anything."""
    return parse_uuid(text) is not None


def check_tag(text: str) -> str:
    """Return a tag.

    Raises:
        Misuse: the text is none.

    """
    if not is_tag(text):
        raise Misuse(
            f"{printable(text)!r} is no tag: 1 to 128 letters, digits, '_', '.' and '-', "
            "not beginning with '.' or '-'"
        )
    return text


def repository_path(client: ApiClient, written: str) -> str:
    """Return the path of a repository, which need not be of the account if its id is written."""
    if is_id(written):
        return f"/v1/repositories/{written}"
    return f"/v1/repositories/{find_repository(client, written)['id']}"


def find_repository(client: ApiClient, written: str) -> Record:
    """Return the record of a repository of the account.

    Raises:
        Misuse: an image is written.
        Missing: there is none.

    """
    if set(":@") & set(written.rpartition("/")[2]):
        raise Misuse(f"a repository is named without tag or digest, not {printable(written)!r}")
    if is_id(written):
        found: Record = client.call("GET", f"/v1/repositories/{written}")["repository"]
        return found
    full = written.removeprefix(f"{client.host}/")
    refused = None
    # Names are nested at will, so the first component can be a part of the name or the account's.
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
    """Return the path of an image, which was written as ``REPO:TAG`` or ``REPO@DIGEST``.

    Raises:
        Misuse: neither tag nor digest is written.
        Missing: there is no such repository or tag.

    """
    reference = parse_typed_reference(written)
    if reference.digest is None and reference.tag is None:
        raise Misuse(f"which image of {printable(written)}? write REPO:TAG or REPO@DIGEST")
    path = repository_path(client, reference.repository)
    return f"{path}/images/{digest_of(client, path, reference)}"


def digest_of(client: ApiClient, path: str, reference: TypedReference) -> str:
    """Return the digest (or id) that a reference names in the repository at `path`."""
    if reference.digest is not None:
        return reference.digest
    assert reference.tag is not None
    try:
        digest: str = client.call("GET", tag_path(path, reference.tag))["tag"]["digest"]
    except RequestRefused as error:
        raise missing_tag(error, reference) from None
    return digest


def tag_path(repository: str, tag: str) -> str:
    """Return the path of a tag in the repository at a path."""
    return f"{repository}/tags/{quote(tag, safe='')}"


def missing_tag(error: RequestRefused, reference: TypedReference) -> RequestRefused | Missing:
    """Return what to tell of a refusal about a tag."""
    if error.status != 404:
        return error
    return Missing(
        f"there is no tag {reference.tag!r} in {reference.repository}; "
        f"'entrepot tags list {reference.repository}' shows those there are"
    )
