"""A kept answer: its bytes, the read that proves it, and the answers that are proved with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from cloudcore.serving.record import Alike, RequestRecord

EXTENSION: Final = "entrepot.keep"
"""The ASGI extension, and the key of a `Keep` in ``http.response.start``."""
MOST_HEAD_BYTES: Final = 8 * 1024
MOST_ANSWER_BYTES: Final = 64 * 1024
"""Longest head of a request, and longest answer, that are kept."""
_MOST_TOGETHER: Final = 64
"""Most answers whose proofs are read together."""
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
    together: Callable[..., Mapping[Hashable, Hashable]] | None = None
    """Makes the looks of several proofs that differ in the last of `given` alone: it takes a
    sequence of those, and returns what `look` would by each; what is missing is None."""


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


class Group:
    """Answers whose proofs are read together.

    First those that were given since the version before. If others are asked for then, each read
    takes twice as many as the one before of those that were given earlier. Else clients that ask
    for the same one after the other would all wait for a read of each, and give so few meanwhile
    that the next version began with few again.
    """

    __slots__ = ("_more", "asked", "earlier", "users", "version")

    def __init__(self) -> None:
        self.asked: dict[Answer, None] = {}
        """Those given since some were read together, the last at the end."""
        self.earlier: dict[Answer, None] = {}
        """Those given before, likewise."""
        self.users = 0
        self.version: int | None = None
        """Of the data, when they were read together last."""
        self._more = 0

    def ask(self, answer: Answer) -> None:
        """Note that an answer was given, if it is still kept."""
        if not answer.users:
            return
        answer.is_asked = True
        self.earlier.pop(answer, None)
        self.asked[answer] = None

    def take(self, answer: Answer, version: int | None) -> list[Answer]:
        """Return `answer` and those to read together with it, when the data has this version."""
        if version is None:
            return [answer]
        if version != self.version:
            self.version, self._more = version, 0
            given = list(self.asked)[-_MOST_TOGETHER:]
            self._begin()
        else:
            unread = (each for each in reversed(self.earlier) if each.taken != version)
            others = (each for each in unread if each.version != version)
            given = list(islice(others, self._more))
            self._more = min(2 * self._more or 1, _MOST_TOGETHER)
        for each in given:
            each.taken = version
        return [answer, *(each for each in given if each is not answer)]

    def leave(self, answer: Answer) -> None:
        """Forget an answer that is not kept any more."""
        self.asked.pop(answer, None)
        self.earlier.pop(answer, None)

    def _begin(self) -> None:
        for each in self.asked:
            each.is_asked = False
        self.earlier |= self.asked
        self.asked.clear()


class Answer:
    """A rendered answer, which all requests share that get the same."""

    __slots__ = (
        "after",
        "before",
        "covered",
        "group",
        "is_asked",
        "key",
        "proof",
        "size",
        "status_line",
        "taken",
        "users",
        "version",
    )

    def __init__(self, key: AnswerKey, group: Group | None) -> None:
        self.key = key
        self.group = group
        self.is_asked = False
        """True if it is among `group.asked`."""
        self.proof, self.status_line, self.before, self.after = key
        self.version: int | None = None
        self.taken: int | None = None
        """Version at which it was read with another one last: if it differed, once is enough."""
        self.covered: Hashable = None
        """What the cover of its proof found before the proof was read last."""
        self.size = ANSWER_BYTES + len(self.before) + len(self.after)
        self.users = 0

    def rendered(self, common: bytes, request_id: str) -> bytes:
        """Return the bytes to send, with these header lines of every answer and this id."""
        return b"".join((self.status_line, common, self.before, request_id.encode(), self.after))


class Reading(NamedTuple):
    """A read of a cover, or of a group, that waits for the database."""

    version: int
    """Of the data, before it began."""
    answers: list[Answer]
    task: asyncio.Task[bool]

    def proves(self, answer: Answer) -> bool:
        """Return True if what is read may prove this answer, which has the same cover or group."""
        return answer.group is None or answer in self.answers


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
        self.record_end = (*record[10:-1], Alike())

    def record_again(
        self, finished_at: float, seconds: float, request_id: str, client: str
    ) -> RequestRecord:
        """Return the record of this request, made again by `client`."""
        start, end = self.record_start, self.record_end
        fields = (finished_at, seconds, request_id, *start, client, *end)
        return tuple.__new__(RequestRecord, fields)  # at half the cost of `_make`


AnswerKey = tuple[Proof | None, bytes, bytes, bytes]
