"""Write logs as JSON lines on standard error: our own, uvicorn's and the access log.

The access log has one line for each request, written by a separate thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
import threading
from collections import deque
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from cloudcore.serving.planes import Planes
from cloudcore.serving.request_record import MAX_USER_AGENT, PLAIN_HTTP, RequestRecord

MAX_MESSAGE = 16 * 1024


def timestamp(seconds: float) -> str:
    """Format seconds since the epoch as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with a traceback in the field ``error``.

    The record's ``fields`` (from ``extra``) are added, unless a field with that name exists.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without a line end."""
        line: dict[str, Any] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_MESSAGE],
        }
        request_id = getattr(record, "request_id", None)
        if request_id:
            line["request_id"] = request_id
        fields: dict[str, Any] = getattr(record, "fields", {})
        line |= {name: value for name, value in fields.items() if name not in line}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure_logging(level: str = "INFO") -> None:
    """Send all logs of the standard library's `logging` to standard error, as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # uvicorn logs every start and stop; we log the relevant ones ourselves.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)


FLUSH_SECONDS = 0.25
MAX_PENDING = 50_000
"""Lines buffered while standard error is blocked; older ones are dropped."""

_DURATION = b',"duration_ms":'

MAX_PATH = 1024
MAX_QUERY = 512
PIPE_BYTES = 4096
"""PIPE_BUF: shorter writes of several processes never mix in a pipe."""
FILE_BYTES = 64 * 1024
"""Bytes of a write to a regular file, which is locked meanwhile."""
MOST_BATCHES = 64
"""Maximum number of batches that are made before they are written."""


class AccessLine(msgspec.Struct):
    """The access log line of a request; its only request header is the user agent."""

    time: str
    request_id: str
    method: str
    path: str
    query: str
    status: int
    bytes_sent: int
    bytes_received: int
    duration_ms: float
    client: str
    principal: str
    scheme: str
    user_agent: str
    source: str | UnsetType = UNSET
    """Name of the person or service account behind the principal."""
    session_name: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    level: str = "info"
    logger: str = "access"


def loggable_query(query: bytes, logged: frozenset[bytes]) -> str:
    """Return the query string with only the parameters in `logged`."""
    if not query:
        return ""
    kept = [part for part in query.split(b"&") if part.partition(b"=")[0] in logged]
    return _printable(b"&".join(kept), MAX_QUERY)


def access_line(record: RequestRecord, planes: Planes, scheme: str = "http") -> AccessLine:
    """Return the line for a finished request."""
    _, source, session_name = record.source or (None, None, None)
    logged = planes.planes[record.plane].logged_parameters
    return AccessLine(
        timestamp(record.finished_at),
        record.request_id,
        record.method,
        _printable(record.path, MAX_PATH),
        loggable_query(record.query, logged),
        record.status,
        record.sent,
        record.received,
        round(record.seconds * 1000, 3),
        record.client,
        record.principal,
        "http" if record.reason == PLAIN_HTTP else scheme,
        _printable_agent(record.user_agent),
        source or UNSET,
        session_name or UNSET,
        record.reason or UNSET,
    )


def _printable(text: bytes, limit: int) -> str:
    """Return at most `limit` characters of a client's text, with non-ASCII bytes escaped.

    DEL is escaped too: terminals interpret it, and JSON does not escape it.
    """
    return text[:limit].replace(b"\x7f", b"?").decode("ascii", "backslashreplace")[:limit]


@lru_cache(256)  # clients repeat the same user agent
def _printable_agent(text: bytes) -> str:
    return _printable(text, MAX_USER_AGENT)


def _shared_parts(line: bytes) -> tuple[bytes, bytes]:
    """Split a line; return the text between id and duration, and the text after the client."""
    start = line.index(b',"method":')
    duration, client = line.index(_DURATION), line.index(b',"client":')
    return line[start : duration + len(_DURATION)], line[line.index(b',"principal":', client) :]


def _line_again(record: RequestRecord, middle: bytes, end: bytes) -> bytes:
    """Make a record's line from `_shared_parts` of a similar one, in a fifth of the time."""
    finished_at, duration, request_id, client = record[0], record[1], record[2], record[9]
    seconds = int(finished_at)
    return b'{"time":"%b.%03d+00:00","request_id":"%b"%b%b,"client":"%b"%b' % (
        _second(seconds),
        int((finished_at - seconds) * 1000),
        request_id.encode(),
        middle,
        _milliseconds(round(duration * 1e6)),
        client.encode(),
        end,
    )


@lru_cache(1024)  # most take some tens of microseconds
def _milliseconds(microseconds: int) -> bytes:
    """Return a duration as JSON text, in milliseconds."""
    return repr(microseconds / 1000).encode()


@lru_cache(4)
def _second(seconds: int) -> bytes:
    """Format a time like `timestamp`, but only to the second."""
    return timestamp(seconds)[: -len(".000+00:00")].encode()


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # it is closed, and nothing will be written
        return False


class AccessLog:
    """Collects finished requests and writes their lines in batches from a thread.

    So a slow reader of standard error does not block the event loop.
    """

    def __init__(self, planes: Planes, descriptor: int = 2, scheme: str = "http") -> None:
        """Write to `descriptor`; all requests have the URL scheme `scheme`."""
        self._planes = planes
        self._scheme = scheme
        self._descriptor = descriptor
        self._batch_bytes = FILE_BYTES if _is_file(descriptor) else PIPE_BYTES
        self._records: deque[RequestRecord] = deque(maxlen=MAX_PENDING)
        self._encoder = msgspec.json.Encoder()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)

    def __call__(self, record: RequestRecord) -> None:
        """Add a finished request."""
        self._records.append(record)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Write the remaining lines, waiting for at most a second."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(1)

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        # Each write hands the interpreter's lock to the event loop. To make lines between two of
        # them would hold up the loop each time that it comes back.
        while batches := self._take_batches():
            for batch in batches:
                self._write(batch)

    def _take_batches(self) -> list[bytearray]:
        """Return the pending lines in batches, each small enough for one write."""
        batches: list[bytearray] = []
        batch = bytearray()
        with contextlib.suppress(IndexError):
            while len(batches) < MOST_BATCHES:
                line = self._line(self._records.popleft())
                if batch and len(batch) + len(line) > self._batch_bytes:
                    batches.append(batch)
                    batch = bytearray()
                batch += line
        return [*batches, batch] if batch else batches

    def _line(self, record: RequestRecord) -> bytes:
        cache = record.cache
        if cache is not None and cache.line is not None:
            return _line_again(record, *cache.line)
        line = self._encoder.encode(access_line(record, self._planes, self._scheme)) + b"\n"
        if cache is not None:
            cache.line = _shared_parts(line)
        return line

    def _write(self, batch: bytearray) -> None:
        with contextlib.suppress(OSError):
            while batch:
                del batch[: os.write(self._descriptor, batch)]
