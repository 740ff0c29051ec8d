"""Read XML as it comes, within bounds: no document becomes larger in memory than what it says.

A whole tree takes a hundred times the bytes of its document, and time to build it. So documents
with many entries are read entry by entry, and whatever exceeds a bound ends the reading at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar
from xml.etree.ElementTree import Element
from xml.parsers.expat import ExpatError, ParserCreate

from cloudcore.storage.s3.errors import S3Error

T = TypeVar("T")

MAX_DEPTH: Final = 8
MAX_NAMES: Final = 64
"""Maximum different names of elements, attributes and namespaces."""
ELEMENTS_OF_ENTRY: Final = 16
"""More than an entry of a document has that is read entry by entry; the entry counts too."""
MAX_TOKEN_BYTES: Final = 64 * 1024
"""Maximum length of a tag, a comment or an instruction; expat keeps one until it ends."""
PORTION: Final = 16 * 1024
"""Bytes to parse at a time: a millisecond."""
_NAMESPACE_END: Final = "}"


class XmlReader:
    """Reads one document, portion by portion.

    Elements have their names without namespaces. Without `take`, `finish` returns the document;
    with it, each child of the root is passed to `take` once it is complete, and not kept; it has at
    most `ELEMENTS_OF_ENTRY`.
    """

    def __init__(self, name: str, most: int, take: Callable[[Element], None] | None = None) -> None:
        """Expect a root called `name`, and at most `most` elements."""
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
        parser.StartDoctypeDeclHandler = _refuse_doctype

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the document, of any length.

        Raises:
            S3Error: MalformedXML. Then the rest must not be fed.

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

        Raises:
            S3Error: MalformedXML.

        """
        self._parse(b"", is_last=True)
        assert self._root is not None, "a document without a root is malformed"
        return self._root

    def close(self) -> None:
        """Free the memory now: reader and parser refer to each other."""
        del self._parser
        self._open.clear()

    def _parse(self, portion: bytes, *, is_last: bool) -> None:
        try:
            self._parser.Parse(portion, is_last)
        except (ExpatError, ValueError, LookupError):  # the latter two: of its encoding
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
        """Add to the text of an element, up to its first child."""
        element = self._open[-1]
        if len(self._open) > 1 and not len(element):
            element.text = (element.text or "") + data


class Incoming(NamedTuple, Generic[T]):
    """A document that is read as it comes."""

    reader: XmlReader
    finish: Callable[[], T]
    """Ends the document; returns what it says, or raises S3Error."""


def read_xml(body: bytes, name: str, most: int) -> Element:
    """Return the root of a short document, which must be called `name`.

    Raises:
        S3Error: MalformedXML, also for more than `most` elements.

    """
    reader = XmlReader(name, most)
    try:
        reader.feed(body)
        return reader.finish()
    finally:
        reader.close()


def _refuse_doctype(*_: object) -> None:
    """Refuse declarations, so that there are no entities that grow or name files."""
    refuse()


def refuse() -> NoReturn:
    """Refuse a document as S3 does."""
    raise S3Error(
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
