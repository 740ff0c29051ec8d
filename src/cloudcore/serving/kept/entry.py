"""A kept answer: its bytes, and the read that proves it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from cloudcore.serving.record import ObserverCache, RequestRecord

EXTENSION: Final = "entrepot.keep"
"""The ASGI extension, and the key of a `Keep` in ``http.response.start``."""
MOST_HEAD_BYTES: Final = 8 * 1024
MOST_ANSWER_BYTES: Final = 64 * 1024
"""Longest head of a request, and longest answer, that are kept."""
ENTRY_BYTES: Final = 1500
ANSWER_BYTES: Final = 1500
"""What the objects of an entry and of an answer take, besides their bytes."""


class Proof(NamedTuple):
    """The proof of an answer: it is unchanged while `look` with `given` returns `found`.

    The application read `found` before, or in the same statement as, the content of its answer. A
    value that has changed does not come back, unless the answer is the same again too.
    """

    look: Callable[..., Hashable]
    given: tuple[Hashable, ...]
    found: Hashable


class Keep(NamedTuple):
    """The terms under which an answer may be sent again."""

    until: int
    """By the clock, in microseconds."""
    proof: Proof | None = None
    """None if it depends on nothing but the request."""
    noted: Callable[[], None] | None = None
    """Called each time that it is given again."""


class KeptAnswer:
    """A rendered answer, shared by all requests with the same answer."""

    __slots__ = (
        "after",
        "before",
        "key",
        "proof",
        "size",
        "status_line",
        "users",
        "version",
    )

    def __init__(self, key: AnswerKey) -> None:
        self.key = key
        self.proof, self.status_line, self.before, self.after = key
        self.version: int | None = None
        self.size = ANSWER_BYTES + len(self.before) + len(self.after)
        self.users = 0

    def rendered(self, common: bytes, request_id: str) -> bytes:
        """Return the bytes to send, with the common header lines and a request id."""
        return b"".join((self.status_line, common, self.before, request_id.encode(), self.after))


class KeptEntry:
    """The kept answer of one request, and the parts of its record."""

    __slots__ = (
        "answer",
        "noted",
        "record",
        "record_end",
        "record_start",
        "server",
        "size",
        "until",
    )

    def __init__(
        self, answer: KeptAnswer, keep: Keep, record: RequestRecord, server: object, size: int
    ) -> None:
        self.answer = answer
        self.until = keep.until
        self.noted = keep.noted
        self.server = server
        """Address of the connection; a challenge may name it."""
        self.size = size
        self.record = record
        self.record_start = record[3:9]
        self.record_end = (*record[10:-1], ObserverCache())

    def record_again(
        self, finished_at: float, seconds: float, request_id: str, client: str
    ) -> RequestRecord:
        """Return the record of the same request, repeated by `client`."""
        start, end = self.record_start, self.record_end
        fields = (finished_at, seconds, request_id, *start, client, *end)
        return tuple.__new__(RequestRecord, fields)  # at half the cost of `_make`


AnswerKey = tuple[Proof | None, bytes, bytes, bytes]
