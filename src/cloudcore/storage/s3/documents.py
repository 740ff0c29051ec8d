"""Read the XML documents that clients of the S3 endpoint send."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn
from xml.etree.ElementTree import Element, ParseError

from defusedxml.ElementTree import fromstring

from cloudcore.storage.s3.errors import S3Error

MAX_DELETED: Final = 1000
MAX_PARTS: Final = 10_000
MAX_RULES: Final = 100
_DELETED_IF: Final = ("ETag", "LastModifiedTime", "Size")
_PREFIX: Final = re.compile(r"^\{[^}]*\}")


class CompletedPart(NamedTuple):
    """A part that a completion names."""

    number: int
    etag: str
    """Without quotes."""
    checksums: dict[str, str]
    """By the name of the algorithm."""


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


def read_deletion(body: bytes) -> Deletion:
    """Return what a ``Delete`` document names.

    Raises:
        S3Error: MalformedXML, also with more than `MAX_DELETED` keys or versions of them.

    """
    root = _parse(body, "Delete")
    keys: list[str] = []
    for each in _children(root, "Object"):
        if _text(each, "VersionId") not in (None, "null"):
            raise S3Error("NotImplemented", "Objects have no versions here.")
        if any(_children(each, name) for name in _DELETED_IF):
            raise S3Error("NotImplemented", "Deletions of a batch are not conditional here.")
        keys.append(_needed(each, "Key"))
    if not 1 <= len(keys) <= MAX_DELETED:
        _refuse()
    return Deletion(keys, _text(root, "Quiet") == "true")


def read_completion(body: bytes) -> list[CompletedPart]:
    """Return the parts that a ``CompleteMultipartUpload`` document names.

    Raises:
        S3Error: MalformedXML.

    """
    root = _parse(body, "CompleteMultipartUpload")
    parts = [
        CompletedPart(
            _number(_needed(each, "PartNumber")),
            _needed(each, "ETag").strip().strip('"'),
            {
                _name(child)[len("Checksum") :]: (child.text or "").strip()
                for child in each
                if _name(child).startswith("Checksum")
            },
        )
        for each in _children(root, "Part")
    ]
    if not 1 <= len(parts) <= MAX_PARTS:
        _refuse()
    return parts


def read_tags(body: bytes) -> dict[str, str]:
    """Return the tags of a ``Tagging`` document.

    Raises:
        S3Error: MalformedXML, or InvalidTag if a key comes twice.

    """
    tag_sets = _children(_parse(body, "Tagging"), "TagSet")
    if len(tag_sets) != 1:
        _refuse()
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
        _refuse()
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
    try:
        root: Element = fromstring(body, forbid_dtd=True)
    except (ParseError, ValueError, LookupError):  # ValueError: what defusedxml forbids
        _refuse()
    if _name(root) != name:
        _refuse()
    return root


def _name(element: Element) -> str:
    return _PREFIX.sub("", str(element.tag))


def _children(element: Element, name: str) -> list[Element]:
    return [each for each in element if _name(each) == name]


def _texts(element: Element, name: str) -> list[str]:
    found = _children(element, name)
    if any(len(each) for each in found):
        _refuse()
    return [each.text or "" for each in found]


def _text(element: Element, name: str) -> str | None:
    found = _texts(element, name)
    if len(found) > 1:
        _refuse()
    return found[0] if found else None


def _needed(element: Element, name: str) -> str:
    found = _text(element, name)
    if not found:
        _refuse()
    return found


def _number(digits: str) -> int:
    digits = digits.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        _refuse()
    return int(digits)


def _refuse() -> NoReturn:
    raise S3Error(
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
