"""Read the XML documents that clients of the S3 endpoint send."""

from __future__ import annotations

from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from cloudcore.storage.multipart import GivenPart
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.xml_reading import Incoming, XmlReader, read_xml, refuse

MAX_DELETED: Final = 1000
MAX_PARTS: Final = 10_000
MAX_RULES: Final = 100
_DELETED_IF: Final = ("ETag", "LastModifiedTime", "Size")
_MAX_ELEMENTS: Final = 4000
"""Maximum elements of a short document."""
_ELEMENTS_OF_ENTRY: Final = 10
"""More than an entry of `Delete` or `CompleteMultipartUpload` has."""


class Deletion(NamedTuple):
    """The keys that a batch deletes."""

    keys: list[str]
    quiet: bool


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
    quiet: list[str] = []

    def take(entry: Element) -> None:
        if entry.tag == "Quiet":
            quiet.append(_content(entry))
        elif entry.tag == "Object":
            keys.append(_read_deleted(entry))
        if len(keys) > MAX_DELETED or len(quiet) > 1:
            refuse()

    def finish() -> Deletion:
        reader.finish()
        if not keys:
            refuse()
        return Deletion(keys, quiet == ["true"])

    reader = XmlReader("Delete", MAX_DELETED * _ELEMENTS_OF_ENTRY, take)
    return Incoming(reader, finish)


def _read_deleted(entry: Element) -> str:
    if _text(entry, "VersionId") not in (None, "null"):
        raise S3Error("NotImplemented", "Objects have no versions here.")
    if any(_children(entry, name) for name in _DELETED_IF):
        raise S3Error("NotImplemented", "Deletions of a batch are not conditional here.")
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

    reader = XmlReader("CompleteMultipartUpload", MAX_PARTS * _ELEMENTS_OF_ENTRY, take)
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
    tags: dict[str, str] = {}
    for each in _children(tag_sets[0], "Tag"):
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


def is_private_acl(body: bytes) -> bool:
    """Return True if an ``AccessControlPolicy`` document lets in nobody but one owner.

    Raises:
        S3Error: MalformedXML.

    """
    root = _parse(body, "AccessControlPolicy")
    owners = {_text(owner, "ID") for owner in _children(root, "Owner")}
    grantees = [
        grantee
        for grants in _children(root, "AccessControlList")
        for grant in _children(grants, "Grant")
        for grantee in _children(grant, "Grantee")
    ]
    return all(_text(grantee, "ID") in owners for grantee in grantees)


def read_location(body: bytes) -> str | None:
    """Return the region that a ``CreateBucketConfiguration`` document asks for, or None.

    Raises:
        S3Error: MalformedXML.

    """
    if not body:
        return None
    return _text(_parse(body, "CreateBucketConfiguration"), "LocationConstraint")


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
