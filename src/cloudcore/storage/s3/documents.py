"""Parse XML documents of clients as they arrive, within limits.

A complete tree takes a hundred times the bytes of its document, and time to build. So documents
with many entries are parsed entry by entry, and parsing ends as soon as a limit is exceeded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar
from xml.etree.ElementTree import Element
from xml.parsers.expat import ExpatError, ParserCreate

from cloudcore.storage.cors import CorsRule
from cloudcore.storage.multipart import MAX_PARTS, GivenPart
from cloudcore.storage.s3.errors import S3Error

T = TypeVar("T")

MAX_DEPTH: Final = 8
MAX_NAMES: Final = 64
"""Maximum different names of elements, attributes and namespaces."""
ELEMENTS_OF_ENTRY: Final = 16
"""Maximum elements of one entry, including the entry itself, in documents that are read entry by
entry. No valid entry has as many."""
MAX_TOKEN_BYTES: Final = 64 * 1024
"""Maximum length of a tag, a comment or an instruction, each of which expat buffers whole."""
PORTION: Final = 16 * 1024
"""Bytes to parse at a time, which takes a millisecond."""
_NAMESPACE_END: Final = "}"


class XmlReader:
    """Parses one document, portion by portion.

    Elements are named without namespaces. Without `take`, `finish` returns the document's tree.
    With `take`, each child of the root is passed to `take` once complete, and dropped; a child has
    at most `ELEMENTS_OF_ENTRY` elements.
    """

    def __init__(self, name: str, most: int, take: Callable[[Element], None] | None = None) -> None:
        """Expect a root named `name`, and at most `most` elements."""
        self._name = name
        self._most = most
        self._take = take
        self._count = self._of_entry = 0
        self._open: list[Element] = []
        self._root: Element | None = None
        self._fed = 0
        self._names: dict[str, str] = {}
        self._parser = parser = ParserCreate(None, _NAMESPACE_END, self._names)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        # The entities of a document type declaration could expand or read files.
        parser.StartDoctypeDeclHandler = lambda *_: refuse()

    def feed(self, data: bytes | memoryview) -> None:
        """Parse the next bytes of the document, of any length.

        Raises:
            S3Error: MalformedXML. Then no more bytes may be fed.

        """
        with memoryview(data) as view:
            for start in range(0, len(view), PORTION):
                portion = bytes(view[start : start + PORTION])
                self._fed += len(portion)
                self._parse(portion, is_last=False)
                if self._fed - self._parser.CurrentByteIndex > MAX_TOKEN_BYTES:
                    refuse()

    def finish(self) -> Element:
        """End the document; return its root.

        Raise `S3Error` (MalformedXML).
        """
        self._parse(b"", is_last=True)
        assert self._root is not None, "a document without a root is malformed"
        return self._root

    def close(self) -> None:
        """Free the memory at once, by breaking the cycle of reader and parser."""
        del self._parser
        self._open.clear()

    def _parse(self, portion: bytes, *, is_last: bool) -> None:
        try:
            self._parser.Parse(portion, is_last)
        except (ExpatError, ValueError, LookupError):  # the latter two: an unknown encoding
            refuse()

    def _start(self, tag: str, _attributes: dict[str, str]) -> None:
        self._count += 1
        depth = len(self._open)
        if self._count > self._most or depth == MAX_DEPTH or len(self._names) > MAX_NAMES:
            refuse()
        self._of_entry = 1 if depth == 1 else self._of_entry + 1
        if self._take is not None and self._of_entry > ELEMENTS_OF_ENTRY:
            refuse()
        name = tag.rpartition(_NAMESPACE_END)[2]
        element = Element(name)
        if depth == 0:
            if name != self._name:
                refuse()
            self._root = element
        elif depth > 1 or self._take is None:
            self._open[-1].append(element)
        self._open.append(element)

    def _end(self, _tag: str) -> None:
        element = self._open.pop()
        if self._take is not None and len(self._open) == 1:
            self._take(element)

    def _text(self, data: str) -> None:
        """Append to the text of an element; text after its first child is dropped."""
        element = self._open[-1]
        if len(self._open) > 1 and not len(element):
            element.text = (element.text or "") + data


class Incoming(NamedTuple, Generic[T]):
    """A document that is parsed as it arrives."""

    reader: XmlReader
    finish: Callable[[], T]
    """Ends the document; returns its content, or raises `S3Error`."""


def refuse() -> NoReturn:
    """Raise S3's error for a malformed document."""
    raise S3Error(
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema",
    )


MAX_DELETED: Final = 1000
MAX_RULES: Final = 100
_DELETED_IF: Final = ("LastModifiedTime", "Size")
_MAX_ELEMENTS: Final = 4000
"""Maximum elements of a short document."""


class DeleteObjects(NamedTuple):
    """The keys of a batch deletion."""

    keys: list[str]
    quiet: bool
    etags: Mapping[str, str] = {}
    """By key, the ETag without quotes that the object must have to be deleted."""


def expect_deletion() -> Incoming[DeleteObjects]:
    """Return a parser for a ``Delete`` document.

    The parser raises `S3Error`: MalformedXML for a malformed document or more than `MAX_DELETED`
    keys, NotImplemented for versions or other conditions than an ETag.
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

    def finish() -> DeleteObjects:
        reader.finish()
        if not keys:
            refuse()
        return DeleteObjects(keys, quiet == ["true"], etags)

    reader = XmlReader("Delete", MAX_DELETED * ELEMENTS_OF_ENTRY, take)
    return Incoming(reader, finish)


def _read_deleted(entry: Element) -> str:
    if _text(entry, "VersionId") not in (None, "null"):
        raise S3Error("NotImplemented", "Objects have no versions here.")
    if any(entry.findall(name) for name in _DELETED_IF):
        raise S3Error("NotImplemented", "A deletion is conditional on an ETag alone.")
    return _needed(entry, "Key")


def expect_completion() -> Incoming[list[GivenPart]]:
    """Return a parser for a ``CompleteMultipartUpload`` document.

    The parser raises `S3Error` (MalformedXML), also for more than `MAX_PARTS` parts.
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
    """Parse the tags in a ``Tagging`` document.

    Raise `S3Error` (MalformedXML, or InvalidTag if a key is repeated).
    """
    tag_sets = _parse(body, "Tagging").findall("TagSet")
    if len(tag_sets) != 1:
        refuse()
    return _tags(tag_sets[0].findall("Tag"))


def _tags(elements: list[Element]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in elements:
        key = _needed(each, "Key")
        if key in tags:
            raise S3Error("InvalidTag", "Cannot provide multiple Tags with the same key")
        tags[key] = _text(each, "Value") or ""
    return tags


def read_cors(body: bytes) -> list[CorsRule]:
    """Parse the rules in a ``CORSConfiguration`` document; raise `S3Error` (MalformedXML)."""
    root = _parse(body, "CORSConfiguration")
    rules = []
    for each in root.findall("CORSRule"):
        age = _text(each, "MaxAgeSeconds")
        rules.append(
            CorsRule(
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
    """Return True if an ``AccessControlPolicy`` grants `owner_id` full control, and nothing else.

    Raise `S3Error` (MalformedXML).
    """
    root = _parse(body, "AccessControlPolicy")
    owners = [_text(owner, "ID") for owner in root.findall("Owner")]
    grants = [
        ([_text(each, "ID") for each in grant.findall("Grantee")], _text(grant, "Permission"))
        for listed in root.findall("AccessControlList")
        for grant in listed.findall("Grant")
    ]
    return set(owners) <= {owner_id} and grants == [([owner_id], "FULL_CONTROL")]


def read_bucket(body: bytes) -> tuple[str, dict[str, str]]:
    """Return (region, tags) in a ``CreateBucketConfiguration``; "" and {} for an empty body.

    Raise `S3Error` (MalformedXML, or InvalidTag if a key is repeated).
    """
    if not body:
        return "", {}
    root = _parse(body, "CreateBucketConfiguration")
    tags = [each for listed in root.findall("Tags") for each in listed.findall("Tag")]
    return _text(root, "LocationConstraint") or "", _tags(tags)


def read_texts(body: bytes, name: str) -> dict[str, str]:
    """Map the path of each element with text, relative to the root `name`, to the text.

    Raise `S3Error` (MalformedXML, also if a path is repeated).
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
    """Return the root of a short document, which must be named `name`."""
    reader = XmlReader(name, _MAX_ELEMENTS)
    try:
        reader.feed(body)
        return reader.finish()
    finally:
        reader.close()


def _texts(element: Element, name: str) -> list[str]:
    return [_content(each) for each in element.findall(name)]


def _content(element: Element) -> str:
    """Return the text of an element; raise `S3Error` if it contains other elements."""
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
