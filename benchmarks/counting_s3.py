"""An S3 server that counts, for benchmarks: it keeps small objects, and of parts their sizes alone.

    python -m benchmarks.counting_s3 --port 9000

It checks no signature and has one bucket, whatever its name. Bodies of parts are dropped in the
kernel, so that hundreds of gigabytes cost it little. ``GET /-/counts`` tells what it was asked for.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import sys
import threading
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID, uuid4

COUNTS: Final = "/-/counts"
_PAGE: Final = 1000
_READ_BYTES: Final = 1 << 20
_MOMENT: Final = "2026-01-01T00:00:00.000Z"
_HTTP_MOMENT: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")
_KEY: Final = re.compile(rb"<Key>([^<]+)</Key>")
_NUMBER: Final = re.compile(rb"<PartNumber>(\d+)</PartNumber>")


@dataclass
class Stored:
    """An object; `body` is None if it was made of parts, or filled in."""

    size: int
    body: bytes | None = None
    token: str = ""


@dataclass
class Upload:
    """An upload in parts."""

    key: str
    token: str
    sizes: dict[int, int] = field(default_factory=dict)


class Reply(NamedTuple):
    """What a request is answered with."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    length: int | None = None
    """Of the body, if it is not sent, or is zeros."""


class Request(NamedTuple):
    """A request without its body."""

    method: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


_Call = Callable[[Request, bytes, int], Reply]


class Objects:
    """The objects of the bucket by key, in the order in which they are listed."""

    def __init__(self) -> None:
        self._stored: dict[str, Stored] = {}
        self._names: dict[str, list[str]] = defaultdict(list)
        """By what is before the last slash of their keys."""

    def get(self, key: str) -> Stored | None:
        """Return an object, or None."""
        return self._stored.get(key)

    def put(self, key: str, stored: Stored) -> None:
        """Store an object."""
        if key not in self._stored:
            folder, _, name = key.rpartition("/")
            insort(self._names[folder], name)
        self._stored[key] = stored

    def delete(self, key: str) -> bool:
        """Delete an object; return False if it is absent."""
        if self._stored.pop(key, None) is None:
            return False
        folder, _, name = key.rpartition("/")
        names = self._names[folder]
        del names[bisect_left(names, name)]
        if not names:
            del self._names[folder]
        return True

    def listed(self, prefix: str, after: str) -> Iterator[str]:
        """Yield the keys with a prefix that come after one."""
        for folder in sorted(self._names):
            start = f"{folder}/" if folder else ""
            if not (start.startswith(prefix) or prefix.startswith(start)):
                continue
            names = self._names[folder]
            first = bisect_left(names, prefix[len(start) :]) if prefix.startswith(start) else 0
            if after.startswith(start):
                first = max(first, bisect_right(names, after[len(start) :]))
            elif after > start:
                continue
            for name in names[first:]:
                if not f"{start}{name}".startswith(prefix):
                    break
                yield f"{start}{name}"

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._stored)


class CountingS3:
    """The bucket, and what it was asked for; requests are answered one at a time."""

    def __init__(self, filled: int = 0) -> None:
        self._lock = threading.Lock()
        self._objects = Objects()
        self._uploads: dict[str, Upload] = {}
        self._calls: Counter[str] = Counter()
        self._parts: Counter[int] = Counter()
        """Of completed uploads, by size."""
        self._most_parts = 0
        self._unchecked = 0
        for number in range(filled):
            object_id = filled_id(number)
            self._objects.put(f"objects/{object_id[-2:]}/{object_id}", Stored(FILLED_BYTES))

    def answer(self, request: Request, body: bytes, length: int) -> Reply:
        """Answer a request, of whose body there are `length` bytes, some of which were dropped."""
        with self._lock:
            if request.key.startswith("-/"):
                return Reply(200, json.dumps(self._counted()).encode())
            name, call = self._called(request)
            self._calls[name] += 1
            if length and "x-amz-checksum-crc32c" not in request.headers and request.key:
                self._unchecked += "uploadId" not in request.query or request.method == "PUT"
            return call(request, body, length)

    def _called(self, request: Request) -> tuple[str, _Call]:
        query = request.query
        if not request.key:
            if "delete" in query:
                return "DeleteObjects", self._delete_many
            if "uploads" in query:
                return "ListMultipartUploads", self._list_uploads
            return "ListObjectsV2", self._list
        if request.method == "POST":
            if "uploads" in query:
                return "CreateMultipartUpload", self._begin
            return "CompleteMultipartUpload", self._complete
        if "uploadId" in query:
            if request.method == "PUT":
                return "UploadPart", self._send_part
            return "AbortMultipartUpload", self._abort
        if request.method == "PUT":
            return "PutObject", self._put
        return ("HeadObject" if request.method == "HEAD" else "GetObject"), self._get

    def _counted(self) -> Mapping[str, object]:
        return {
            "calls": dict(self._calls),
            "parts": dict(self._parts),
            "most_parts": self._most_parts,
            "objects": len(self._objects),
            "open_uploads": len(self._uploads),
            "without_checksum": self._unchecked,
        }

    def _put(self, request: Request, body: bytes, length: int) -> Reply:
        if "if-none-match" in request.headers and self._objects.get(request.key):
            return _error(412, "PreconditionFailed")
        token = request.headers.get("x-amz-meta-hold", "")
        self._objects.put(request.key, Stored(length, body, token))
        return Reply(200, headers={"ETag": '"whole"'})

    def _get(self, request: Request, _body: bytes, _length: int) -> Reply:
        stored = self._objects.get(request.key)
        if stored is None:
            return _error(404, "NoSuchKey")
        about = {"ETag": '"whole"', "Last-Modified": _HTTP_MOMENT, "x-amz-meta-hold": stored.token}
        match = _RANGE.fullmatch(request.headers.get("range", ""))
        if match is None:
            return Reply(200, stored.body or b"", about, stored.size)
        start, stop = int(match[1]), min(int(match[2]) + 1, stored.size)
        if start >= stored.size:
            return _error(416, "InvalidRange")
        about["Content-Range"] = f"bytes {start}-{stop - 1}/{stored.size}"
        found = b"" if stored.body is None else stored.body[start:stop]
        return Reply(206, found, about, stop - start)

    def _begin(self, request: Request, _body: bytes, _length: int) -> Reply:
        upload = uuid4().hex
        token = request.headers.get("x-amz-meta-hold", "")
        self._uploads[upload] = Upload(request.key, token)
        return _document("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")

    def _send_part(self, request: Request, _body: bytes, length: int) -> Reply:
        upload = self._uploads.get(request.query["uploadId"])
        if upload is None:
            return _error(404, "NoSuchUpload")
        upload.sizes[int(request.query["partNumber"])] = length
        return Reply(200, headers={"ETag": '"part"'})

    def _complete(self, request: Request, body: bytes, _length: int) -> Reply:
        upload = self._uploads.pop(request.query["uploadId"], None)
        if upload is None:
            return _error(404, "NoSuchUpload")
        named = [int(each) for each in _NUMBER.findall(body)]
        if named != sorted(upload.sizes) or named != list(range(1, len(named) + 1)):
            return _error(400, "InvalidPart")
        self._parts.update(upload.sizes.values())
        self._most_parts = max(self._most_parts, len(named))
        stored = Stored(sum(upload.sizes.values()), token=upload.token)
        self._objects.put(upload.key, stored)
        return _document("CompleteMultipartUploadResult", "<ETag>whole</ETag>")

    def _abort(self, request: Request, _body: bytes, _length: int) -> Reply:
        self._uploads.pop(request.query["uploadId"], None)
        return Reply(204)

    def _delete_many(self, _request: Request, body: bytes, _length: int) -> Reply:
        for key in _KEY.findall(body):
            self._objects.delete(key.decode())
        return _document("DeleteResult", "")

    def _list(self, request: Request, _body: bytes, _length: int) -> Reply:
        query, found = request.query, list[str]()
        after = query.get("continuation-token", "")
        for key in self._objects.listed(query.get("prefix", ""), after):
            if len(found) == _PAGE:
                break
            found.append(key)
        else:
            return _document("ListBucketResult", self._entries(found, is_last=True))
        return _document("ListBucketResult", self._entries(found, is_last=False))

    def _entries(self, keys: list[str], *, is_last: bool) -> str:
        more = "" if is_last else f"<NextContinuationToken>{keys[-1]}</NextContinuationToken>"
        entries = (
            f"<Contents><Key>{key}</Key><LastModified>{_MOMENT}</LastModified>"
            f"<ETag>whole</ETag><Size>{stored.size}</Size></Contents>"
            for key in keys
            if (stored := self._objects.get(key))
        )
        return f"<IsTruncated>{str(not is_last).lower()}</IsTruncated>{more}{''.join(entries)}"

    def _list_uploads(self, request: Request, _body: bytes, _length: int) -> Reply:
        prefix = request.query.get("prefix", "")
        entries = (
            f"<Upload><Key>{each.key}</Key><UploadId>{name}</UploadId>"
            f"<Initiated>{_MOMENT}</Initiated></Upload>"
            for name, each in self._uploads.items()
            if each.key.startswith(prefix)
        )
        body = f"<IsTruncated>false</IsTruncated>{''.join(entries)}"
        return _document("ListMultipartUploadsResult", body)


FILLED_BYTES: Final = 1024
"""Size of the objects that a bucket is filled with."""
_SPREAD: Final = 0x9E3779B97F4A7C15
"""An odd number: its multiples modulo 2**62 are all different, and look random."""


def filled_id(number: int) -> str:
    """Return the id of an object that a bucket is filled with: a UUIDv7 of some days ago."""
    begun = 1_767_000_000_000 + number  # milliseconds
    spread = number * _SPREAD % (1 << 62)
    return str(UUID(int=begun << 80 | 7 << 76 | 0b10 << 62 | spread))


def _document(root: str, inside: str) -> Reply:
    return Reply(200, f"<{root}>{inside}</{root}>".encode(), {"Content-Type": "application/xml"})


def _error(status: int, code: str) -> Reply:
    return Reply(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


class _Connection:
    """A kept connection, in a thread of its own."""

    def __init__(self, accepted: socket.socket, served: CountingS3) -> None:
        self._socket = accepted
        self._served = served
        self._early = bytearray()
        self._sink = memoryview(bytearray(_READ_BYTES))

    def serve(self) -> None:
        """Answer until the client leaves."""
        try:
            while (head := self._head()) is not None:
                self._exchange(head)
        except OSError:
            pass
        finally:
            self._socket.close()

    def _head(self) -> str | None:
        while (end := self._early.find(b"\r\n\r\n")) < 0:
            got = self._socket.recv(65536)
            if not got:
                return None
            self._early += got
        head = self._early[:end].decode("latin-1")
        del self._early[: end + 4]
        return head

    def _exchange(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.lower(): value.strip() for name, value in pairs}
        parts = urlsplit(target)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        if bucket == "-":
            key = f"-/{key}"
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        length = int(headers.get("content-length", 0))
        if headers.get("expect") == "100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._dropped(length) if "partNumber" in query else self._body(length)
        reply = self._served.answer(Request(method, key, query, headers), body, length)
        self._send(reply, has_body=method != "HEAD")

    def _body(self, length: int) -> bytes:
        while len(self._early) < length:
            got = self._socket.recv(min(length - len(self._early), _READ_BYTES))
            if not got:
                raise ConnectionError
            self._early += got
        body = bytes(self._early[:length])
        del self._early[:length]
        return body

    def _dropped(self, length: int) -> bytes:
        left = length - len(self._early)
        self._early.clear()  # no client sends a request before it has an answer
        flags = socket.MSG_TRUNC | socket.MSG_WAITALL
        while left > 0:
            got = self._socket.recv_into(self._sink, min(left, _READ_BYTES), flags)
            if not got:
                raise ConnectionError
            left -= got
        return b""

    def _send(self, reply: Reply, *, has_body: bool) -> None:
        length = len(reply.body) if reply.length is None else reply.length
        lines = [
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
            *(f"{name}: {value}" for name, value in reply.headers.items()),
            f"Content-Length: {length}",
        ]
        head = "\r\n".join([*lines, "", ""]).encode()
        body = reply.body + bytes(length - len(reply.body)) if has_body else b""
        self._socket.sendall(head + body)


def serve(listener: socket.socket, served: CountingS3) -> None:
    """Serve connections until the process ends."""
    while True:
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(accepted, served)
        threading.Thread(target=connection.serve, daemon=True).start()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counting_s3", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--filled", type=int, default=0, help="objects that there are at first")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    served = CountingS3(options.filled)
    listener = socket.create_server(("127.0.0.1", options.port))
    serve(listener, served)


if __name__ == "__main__":
    main()
