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
    """What an answer depends on: while a read of `look` with `given` finds `found`, it is the same.

    The application looked before it read what it answered, or in the same statement; and what was
    found once and has changed is not found again, unless the answer is the same again too.
    """

    look: Callable[..., Hashable]
    given: tuple[Hashable, ...]
    found: Hashable
    cover: Cover | None = None


class Cover(NamedTuple):
    """A read that many proofs share: while it finds the same, theirs do too."""

    look: Callable[..., Hashable]
    given: tuple[Hashable, ...]


class Covered(NamedTuple):
    """What a cover found when the data had this version, or later."""

    found: Hashable
    version: int | None


class Keep(NamedTuple):
    """How an answer may be given again."""

    until: int
    """By the clock, in microseconds."""
    proof: Proof | None = None
    """None if it depends on nothing but the request."""
    noted: Callable[[], None] | None = None
    """Called each time that it is given again."""


class Answer:
    """A rendered answer, which all requests share that get the same."""

    __slots__ = (
        "after",
        "before",
        "covered",
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
        self.covered: Hashable = None
        """What the cover of its proof found before the proof was read last."""
        self.size = ANSWER_BYTES + len(self.before) + len(self.after)
        self.users = 0

    def rendered(self, common: bytes, request_id: str) -> bytes:
        """Return the bytes to send, with these header lines of every answer and this id."""
        return b"".join((self.status_line, common, self.before, request_id.encode(), self.after))


class Entry:
    """The answer to one request, and what its record says."""

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
        self, answer: Answer, keep: Keep, record: RequestRecord, server: object, size: int
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
        """Return the record of this request, made again by `client`."""
        start, end = self.record_start, self.record_end
        fields = (finished_at, seconds, request_id, *start, client, *end)
        return tuple.__new__(RequestRecord, fields)  # at half the cost of `_make`


AnswerKey = tuple[Proof | None, bytes, bytes, bytes]
