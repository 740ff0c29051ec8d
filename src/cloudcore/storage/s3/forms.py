"""Parse a web form that uploads a file (``multipart/form-data``, RFC 7578).

The fields come first, and are read into memory; the file is passed on as it arrives. Anything after
the file is ignored, as in S3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cloudcore.serving.asgi import BodyStart, Receive, Scope, replay_body_start
from cloudcore.storage.s3.errors import S3Error

Sink = Callable[[memoryview], None]

MAX_FORM_BYTES: Final = 32 * 1024
"""Maximum bytes before the file: some KiB of policy and metadata, and a session token."""
MAX_FIELDS: Final = 100
_FILE: Final = "file"
_END_OF_HEADERS: Final = b"\r\n\r\n"
_BOUNDARY: Final = re.compile(r"\"([^\"\r\n]{1,70})\"|([^\s;\"]{1,70})")
_DISPOSITION: Final = re.compile(r"content-disposition\s*:\s*form-data\s*((?:;.*)?)", re.IGNORECASE)
_PARAMETER: Final = re.compile(r';\s*(name|filename)\s*=\s*(?:"([^"]*)"|([^\s;"]+))', re.IGNORECASE)


class PostForm(NamedTuple):
    """The fields of a form, and the position at which its file begins."""

    fields: Mapping[str, str]
    """Values by lower-case name, without the file."""
    filename: str
    """The name of the file, without a path; may be empty."""
    file_at: int
    """Offset of the file in the body."""
    delimiter: bytes
    """The bytes that end a part of the form."""


def is_form(content_type: str) -> bool:
    """Return True if a request's ``Content-Type`` is that of a form with a file."""
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


async def read_form(
    scope: Scope, receive: Receive, content_type: str
) -> tuple[PostForm, Scope, Receive]:
    """Return a form's fields, and a scope and `receive` that yield the body again from its start.

    Raise `S3Error` if the form is malformed, has no file, or has too many bytes before the file.
    """
    reader = FormReader(_boundary(content_type))
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise S3Error("IncompleteBody", "The body did not arrive whole.")
        is_complete = not message.get("more_body", False)
        found = reader.feed(message.get("body", b""))
        if found is not None:
            begun = BodyStart(bytes(reader.read), is_complete)
            return (found, *replay_body_start(scope, receive, begun))
        if is_complete:
            raise S3Error("InvalidArgument", "POST requires exactly one file upload per request.")


class FormReader:
    """Parses the fields of a form from pieces of its body."""

    def __init__(self, boundary: str) -> None:
        """Expect parts between lines of `boundary`."""
        self.read = bytearray()
        """The bytes received so far."""
        self._delimiter = b"\r\n--" + boundary.encode("latin-1")
        self._fields: dict[str, str] = {}
        self._at = 0

    def feed(self, data: bytes) -> PostForm | None:
        """Parse the next bytes; return the form once its file begins, until then None.

        Raise `S3Error` if the form is malformed, or too many bytes precede the file.
        """
        self.read += data
        if self._at == 0 and not self._begin():
            return None
        while True:
            end = self.read.find(_END_OF_HEADERS, self._at, MAX_FORM_BYTES)
            if end < 0:
                break
            name, filename = _named(bytes(self.read[self._at : end]))
            start = end + len(_END_OF_HEADERS)
            if name == _FILE:
                return PostForm(self._fields, filename, start, self._delimiter)
            end = self.read.find(self._delimiter, end + 2, MAX_FORM_BYTES)
            if end < 0:
                break
            self._keep(name, bytes(self.read[start:end]))
            self._at = end + len(self._delimiter)
            if self.read[self._at : self._at + 2] == b"--":
                raise S3Error(
                    "InvalidArgument", "POST requires exactly one file upload per request."
                )
        if len(self.read) >= MAX_FORM_BYTES:
            raise S3Error(
                "MaxPostPreDataLengthExceededError",
                "Your POST request fields preceding the upload file were too large.",
            )
        return None

    def _begin(self) -> bool:
        """Skip the first delimiter, which may lack its line break; return False if incomplete."""
        first = self._delimiter.removeprefix(b"\r\n")
        if len(self.read) < len(first):
            return False
        if not self.read.startswith(first):
            raise _malformed()
        self._at = len(first)
        return True

    def _keep(self, name: str, value: bytes) -> None:
        if name in self._fields or len(self._fields) == MAX_FIELDS:
            raise S3Error("InvalidArgument", "The form has too many fields, or one of them twice.")
        try:
            self._fields[name] = value.decode()
        except UnicodeDecodeError:
            raise S3Error("InvalidArgument", "A field of the form is not UTF-8.") from None


class FileDecoder:
    """Passes the file in a form to a sink; the body may arrive in pieces of any size."""

    def __init__(self, sink: Sink, form: PostForm) -> None:
        """Pass on the bytes between the start of the form's file and the next delimiter."""
        self._sink = sink
        self._skip = form.file_at
        self._delimiter = form.delimiter
        self._held = b"\r\n"
        """Bytes that may begin a delimiter; at first the line break before an empty file."""
        self._before = len(self._held)
        """Bytes of `_held` that are not part of the file."""
        self._behind: bytes | None = None
        """The two bytes after the delimiter; None until the delimiter has arrived."""

    def write(self, data: memoryview) -> None:
        """Process the next bytes of the body."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        if self._behind is not None:
            self._behind += bytes(data[: 2 - len(self._behind)])
            return
        whole = self._held + bytes(data)
        end = whole.find(self._delimiter)
        if end >= 0:
            self._behind = whole[end + len(self._delimiter) :][:2]
            self._pass_on(whole, end)
            return
        kept = max(len(whole) - len(self._delimiter) + 1, 0)
        self._pass_on(whole, kept)
        self._held = whole[kept:]

    def finish(self) -> None:
        """End the body.

        Raise `S3Error` if no delimiter follows the file, or an incomplete one.
        """
        if self._behind not in (b"--", b"\r\n"):
            raise _malformed()

    def _pass_on(self, whole: bytes, end: int) -> None:
        start = min(self._before, end)
        self._before -= start
        if end > start:
            self._sink(memoryview(whole)[start:end])


def _boundary(content_type: str) -> str:
    """Return the boundary in a ``Content-Type``; it has no semicolon (RFC 2046 §5.1.1)."""
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "boundary" and (found := _BOUNDARY.fullmatch(value)):
            return found[1] or found[2]
    raise _malformed()


def _named(headers: bytes) -> tuple[str, str]:
    """Return (lower-case name of a part, file name without a path); raise `S3Error` if unnamed."""
    try:
        lines = headers.decode().split("\r\n")
    except UnicodeDecodeError:
        raise _malformed() from None
    if lines[0].strip():  # behind the boundary
        raise _malformed()
    for line in lines:
        found = _DISPOSITION.fullmatch(line)
        if found is not None:
            given = {
                each[1].lower(): each[2] or each[3] or "" for each in _PARAMETER.finditer(found[1])
            }
            if "name" in given:
                filename = given.get("filename", "").replace("\\", "/").rpartition("/")[2]
                for escaped, character in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
                    filename = filename.replace(escaped, character)  # browsers escape these
                return given["name"].lower(), filename
    raise _malformed()


def _malformed() -> S3Error:
    return S3Error(
        "MalformedPOSTRequest",
        "The body of your POST request is not well-formed multipart/form-data.",
    )
