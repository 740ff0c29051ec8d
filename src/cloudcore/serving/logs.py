"""Write logs as JSON lines on standard error: our own, uvicorn's and the access log."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

MAX_MESSAGE = 16 * 1024


def timestamp(seconds: float) -> str:
    """Format seconds since the epoch as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with a traceback in the field ``error``.

    The record's ``fields`` (from ``extra``) are added, unless a field of that name exists.
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
    """Send everything the standard library logs to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # uvicorn logs every start and stop; we log the relevant ones ourselves.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
