"""Answers that were given before, given again from memory while they are provably the same.

The whole head of a request, with its credential, is the key. The application says of an answer
which read proves it (`Keep`). If the data has the version at which that was read last, the answer
is given at once; else the one read is made again, and must find the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from typing import Any, Final, NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.serving.record import Alike, RequestRecord

EXTENSION: Final = "entrepot.keep"
"""The ASGI extension, and the key of a `Keep` in ``http.response.start``."""
MOST_HEAD_BYTES: Final = 8 * 1024
MOST_ANSWER_BYTES: Final = 64 * 1024
"""Longest head of a request, and longest answer, that are kept."""
_ENTRY_BYTES: Final = 1500
_ANSWER_BYTES: Final = 1500
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


class _Covered(NamedTuple):
    """What a cover found when the data had this version, or later."""

    found: Hashable
    version: int | None


class Keep(NamedTuple):
    """How an answer may be given again."""

    until: int
    """By the clock, in microseconds."""
    proof: Proof | None = None
    """None: it depends on nothing but the request."""
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

    def __init__(self, key: _AnswerKey) -> None:
        self.key = key
        self.proof, self.status_line, self.before, self.after = key
        self.version: int | None = None
        self.covered: Hashable = None
        """What the cover of its proof found before the proof was read last."""
        self.size = _ANSWER_BYTES + len(self.before) + len(self.after)
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
        self.record_end = (*record[10:-1], Alike())

    def record_again(
        self, finished_at: float, seconds: float, request_id: str, client: str
    ) -> RequestRecord:
        """Return the record of this request, made again by `client`."""
        start, end = self.record_start, self.record_end
        fields = (finished_at, seconds, request_id, *start, client, *end)
        return tuple.__new__(RequestRecord, fields)  # at half the cost of `_make`


_AnswerKey = tuple[Proof | None, bytes, bytes, bytes]


class KeptAnswers:
    """What one worker keeps, of at most some bytes; the least recently used goes first."""

    def __init__(self, database: Database, clock: Callable[[], int], most_bytes: int) -> None:
        """Keep answers that were made from `database`."""
        self._version = database.version
        self._read = database.read
        self._clock = clock
        self._most_bytes = most_bytes
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._answers: dict[_AnswerKey, Answer] = {}
        self._covers: dict[Cover, _Covered] = {}
        self.bytes = 0
        """Memory of all that is kept."""
        self._hits = self._confirmed = self._missed = 0

    def find(self, head: bytes) -> Entry | None:
        """Return what is kept for exactly these bytes, or None."""
        entry = self._entries.get(head)
        if entry is None:
            return None
        if self._clock() >= entry.until:
            self._drop(head)
            return None
        self._entries.move_to_end(head)
        return entry

    def prove(self, head: bytes, entry: Entry) -> bool | Awaitable[bool]:
        """Return True if the answer is still the same; else it is dropped.

        Return an awaitable of that if the database has to be waited for.
        """
        answer = entry.answer
        proof = answer.proof
        if proof is None:
            self._hits += 1
            return True
        version = self._version()
        if version is not None and version == answer.version:
            self._hits += 1
            return True
        known = None if proof.cover is None else self._covers.get(proof.cover)
        if known == (answer.covered, version) and version is not None:
            answer.version = version
            self._confirmed += 1
            return True
        reading = self._read(_look, proof, answer.covered)
        try:
            waits_for = reading.send(None)
        except StopIteration as ended:
            return self._conclude(head, answer, version, ended.value)
        except Exception:  # noqa: BLE001 - the application meets it too, and says so
            return False
        return self._proved(head, answer, version, _Begun(reading, waits_for))

    async def _proved(
        self, head: bytes, answer: Answer, version: int | None, reading: _Begun
    ) -> bool:
        try:
            return self._conclude(head, answer, version, await reading)
        except Exception:  # noqa: BLE001 - as in `prove`
            return False

    def _conclude(
        self, head: bytes, answer: Answer, version: int | None, looked: tuple[Hashable, Hashable]
    ) -> bool:
        proof = answer.proof
        assert proof is not None
        covered, found = looked
        if proof.cover is not None and version is not None and covered is not None:
            self._covers[proof.cover] = _Covered(covered, version)
        if found != proof.found:
            entry = self._entries.get(head)
            if entry is not None and entry.answer is answer:
                self._drop(head)
            return False
        answer.version = version
        answer.covered = covered
        self._confirmed += 1
        return True

    def keep(
        self,
        head: bytes,
        keep: Keep,
        status_line: bytes,
        rendered: bytes,
        record: RequestRecord,
        server: object,
    ) -> None:
        """Keep the answer to `head`: its status line, and what follows the common header lines."""
        if len(head) > MOST_HEAD_BYTES or len(rendered) > MOST_ANSWER_BYTES:
            return
        before, found, after = rendered.partition(record.request_id.encode() or b"\0")
        if not found or found in after:
            return  # its id cannot be told from the rest
        if head in self._entries:
            self._drop(head)
        key = (keep.proof, status_line, before, after)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = Answer(key)
            self.bytes += answer.size
        answer.users += 1
        # The record has path and query again, and the log line has much of the path once more.
        size = _ENTRY_BYTES + len(head) + 2 * len(record.path) + len(record.query)
        entry = Entry(answer, keep, record, server, size)
        self._entries[head] = entry
        self.bytes += entry.size
        self._missed += 1
        while self.bytes > self._most_bytes:
            self._drop(next(iter(self._entries)))

    def drop_ended(self) -> None:
        """Drop what may not be given any more: nobody may ask for it again, and it may be secret.

        It takes some 0.1 µs for each entry.
        """
        now = self._clock()
        self._covers.clear()
        for head in [head for head, entry in self._entries.items() if now >= entry.until]:
            self._drop(head)

    def take_counts(self) -> tuple[int, int, int]:
        """Return what was counted since the last call.

        Answers that were given at once, those given after their proof was read again, and those
        that the application gave, and that were kept.
        """
        counts = self._hits, self._confirmed, self._missed
        self._hits = self._confirmed = self._missed = 0
        return counts

    def _drop(self, head: bytes) -> None:
        entry = self._entries.pop(head)
        answer = entry.answer
        self.bytes -= entry.size
        answer.users -= 1
        if not answer.users:
            del self._answers[answer.key]
            self.bytes -= answer.size


def _look(tx: Connection, proof: Proof, covered: Hashable) -> tuple[Hashable, Hashable]:
    """Read a proof, unless its cover finds what it found when that was read last.

    Return what the cover finds, and what the proof does.
    """
    cover = proof.cover
    if cover is None:
        return None, proof.look(tx, *proof.given)
    now_covered = cover.look(tx, *cover.given)
    if now_covered is not None and now_covered == covered:
        return covered, proof.found
    return now_covered, proof.look(tx, *proof.given)


class _Begun:
    """A coroutine that ran to its first wait outside of any task, for a task to go on with."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, tuple[Hashable, Hashable]], waits_for: object
    ) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, tuple[Hashable, Hashable]]:
        yield self._waits_for
        return (yield from self._coroutine.__await__())
