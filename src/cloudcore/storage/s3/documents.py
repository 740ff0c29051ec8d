"""Read the XML documents that clients of the S3 endpoint send."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, NoReturn
from xml.etree.ElementTree import Element, ParseError

from defusedxml.ElementTree import fromstring

from cloudcore.storage.s3.errors import S3Error

MAX_DELETED: Final = 1000
MAX_PARTS: Final = 10_000
MAX_RULES: Final = 100
_DELETED_IF: Final = ("LastModifiedTime", "Size")
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


def read_deletion(body: bytes) -> Deletion:
    """Return what a ``Delete`` document names.

    Raises:
        S3Error: MalformedXML, also with more than `MAX_DELETED` keys or versions of them.

    """
    root = _parse(body, "Delete")
    keys: list[str] = []
    etags: dict[str, str] = {}
    for each in _children(root, "Object"):
        if _text(each, "VersionId") not in (None, "null"):
            raise S3Error("NotImplemented", "Objects have no versions here.")
        if any(_children(each, name) for name in _DELETED_IF):
            raise S3Error("NotImplemented", "A deletion is conditional on an ETag alone.")
        keys.append(_needed(each, "Key"))
        etag = _text(each, "ETag")
        if etag is not None:
            etags[keys[-1]] = etag.strip().strip('"')
    if not 1 <= len(keys) <= MAX_DELETED:
        _refuse()
    return Deletion(keys, _text(root, "Quiet") == "true", etags)


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
        _refuse()
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
            below = f"{path}{_name(child)}"
            if len(child):
                walk(child, f"{below}/")
            elif below in found:
                _refuse()
            else:
                found[below] = (child.text or "").strip()

    walk(_parse(body, name), "")
    return found


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
