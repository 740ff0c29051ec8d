"""Read the XML documents that clients of the S3 endpoint send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from cloudcore.storage.multipart import GivenPart
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.xml_reading import (
    ELEMENTS_OF_ENTRY,
    Incoming,
    XmlReader,
    read_xml,
    refuse,
)

MAX_DELETED: Final = 1000
MAX_PARTS: Final = 10_000
MAX_RULES: Final = 100
_DELETED_IF: Final = ("LastModifiedTime", "Size")
_MAX_ELEMENTS: Final = 4000
"""Maximum elements of a short document."""


class Deletion(NamedTuple):
    """The keys that a batch deletes."""

    keys: list[str]
    quiet: bool
    etags: Mapping[str, str] = {}
    """By key: what an object must have to be deleted; without quotes."""


class CorsDocument(NamedTuple):
    """A rule of a CORS configuration."""

    allowed_origins: list[str]
    allowed_methods: list[str]
    allowed_headers: list[str]
    expose_headers: list[str]
    max_age_seconds: int | None
    id: str | None


def expect_deletion() -> Incoming[Deletion]:
    """Return a reader of what a ``Delete`` document names.

    Raises, as it reads:
        S3Error: MalformedXML, also with more than `MAX_DELETED` keys or versions of them.

    """
    keys: list[str] = []
    etags: dict[str, str] = {}
    quiet: list[str] = []

    def take(entry: Element) -> None:
        if entry.tag == "Quiet":
            quiet.append(_content(entry))
        elif entry.tag == "Object":
            keys.append(_read_deleted(entry))
            etag = _text(entry, "ETag")
            if etag is not None:
                etags[keys[-1]] = etag.strip().strip('"')
        if len(keys) > MAX_DELETED or len(quiet) > 1:
            refuse()

    def finish() -> Deletion:
        reader.finish()
        if not keys:
            refuse()
        return Deletion(keys, quiet == ["true"], etags)

    reader = XmlReader("Delete", MAX_DELETED * ELEMENTS_OF_ENTRY, take)
    return Incoming(reader, finish)


def _read_deleted(entry: Element) -> str:
    if _text(entry, "VersionId") not in (None, "null"):
        raise S3Error("NotImplemented", "Objects have no versions here.")
    if any(_children(entry, name) for name in _DELETED_IF):
        raise S3Error("NotImplemented", "A deletion is conditional on an ETag alone.")
    return _needed(entry, "Key")


def expect_completion() -> Incoming[list[GivenPart]]:
    """Return a reader of the parts that a ``CompleteMultipartUpload`` document names.

    Raises, as it reads:
        S3Error: MalformedXML, also with more than `MAX_PARTS` parts.

    """
    parts: list[GivenPart] = []

    def take(entry: Element) -> None:
        if entry.tag == "Part":
            parts.append(_read_part(entry))
        if len(parts) > MAX_PARTS:
            refuse()

    def finish() -> list[GivenPart]:
        reader.finish()
        if not parts:
            refuse()
        return parts

    reader = XmlReader("CompleteMultipartUpload", MAX_PARTS * ELEMENTS_OF_ENTRY, take)
    return Incoming(reader, finish)


def _read_part(entry: Element) -> GivenPart:
    return GivenPart(
        _number(_needed(entry, "PartNumber")),
        _needed(entry, "ETag").strip().strip('"'),
        {
            child.tag.removeprefix("Checksum"): _needed(entry, child.tag).strip()
            for child in entry
            if child.tag.startswith("Checksum")
        },
    )


def read_tags(body: bytes) -> dict[str, str]:
    """Return the tags of a ``Tagging`` document.

    Raises:
        S3Error: MalformedXML, or InvalidTag if a key comes twice.

    """
    tag_sets = _children(_parse(body, "Tagging"), "TagSet")
    if len(tag_sets) != 1:
        refuse()
    return _tags(_children(tag_sets[0], "Tag"))


def _tags(elements: list[Element]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in elements:
        key = _needed(each, "Key")
        if key in tags:
            raise S3Error("InvalidTag", "Cannot provide multiple Tags with the same key")
        tags[key] = _text(each, "Value") or ""
    return tags


def read_cors(body: bytes) -> list[CorsDocument]:
    """Return the rules of a ``CORSConfiguration`` document.

    Raises:
        S3Error: MalformedXML.

    """
    root = _parse(body, "CORSConfiguration")
    rules = []
    for each in _children(root, "CORSRule"):
        age = _text(each, "MaxAgeSeconds")
        rules.append(
            CorsDocument(
                _texts(each, "AllowedOrigin"),
                _texts(each, "AllowedMethod"),
                _texts(each, "AllowedHeader"),
                _texts(each, "ExposeHeader"),
                None if age is None else _number(age),
                _text(each, "ID"),
            )
        )
    if not 1 <= len(rules) <= MAX_RULES:
        refuse()
    return rules


def is_private_acl(body: bytes, owner_id: str) -> bool:
    """Return True if an ``AccessControlPolicy`` gives its owner full control, and nobody else any.

    Raises:
        S3Error: MalformedXML.

    """
    root = _parse(body, "AccessControlPolicy")
    owners = [_text(owner, "ID") for owner in _children(root, "Owner")]
    grants = [
        ([_text(each, "ID") for each in _children(grant, "Grantee")], _text(grant, "Permission"))
        for listed in _children(root, "AccessControlList")
        for grant in _children(listed, "Grant")
    ]
    return set(owners) <= {owner_id} and grants == [([owner_id], "FULL_CONTROL")]


def read_bucket(body: bytes) -> tuple[str, dict[str, str]]:
    """Return region and tags of a ``CreateBucketConfiguration``; both may be empty.

    Raises:
        S3Error: MalformedXML, or InvalidTag if a key comes twice.

    """
    if not body:
        return "", {}
    root = _parse(body, "CreateBucketConfiguration")
    tags = [each for listed in _children(root, "Tags") for each in _children(listed, "Tag")]
    return _text(root, "LocationConstraint") or "", _tags(tags)


def read_texts(body: bytes, name: str) -> dict[str, str]:
    """Return the texts of a document by their paths below its root.

    Raises:
        S3Error: MalformedXML, also if two have one path.

    """
    found: dict[str, str] = {}

    def walk(element: Element, path: str) -> None:
        for child in element:
            below = f"{path}{child.tag}"
            if len(child):
                walk(child, f"{below}/")
            elif below in found:
                refuse()
            else:
                found[below] = (child.text or "").strip()

    walk(_parse(body, name), "")
    return found


def _parse(body: bytes, name: str) -> Element:
    return read_xml(body, name, _MAX_ELEMENTS)


def _children(element: Element, name: str) -> list[Element]:
    return element.findall(name)


def _texts(element: Element, name: str) -> list[str]:
    return [_content(each) for each in _children(element, name)]


def _content(element: Element) -> str:
    """Return the text of an element, which must have no other elements."""
    if len(element):
        refuse()
    return element.text or ""


def _text(element: Element, name: str) -> str | None:
    found = _texts(element, name)
    if len(found) > 1:
        refuse()
    return found[0] if found else None


def _needed(element: Element, name: str) -> str:
    found = _text(element, name)
    if not found:
        refuse()
    return found


def _number(digits: str) -> int:
    digits = digits.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        refuse()
    return int(digits)
