"""Kept answers: a cache of answers that are sent again while a read proves them unchanged.

The whole head of a request, with its credential, is the key. With an answer, the application
supplies the read that proves it (`KeepTerms`). If the database still has the version of the last
proof, the answer is sent at once; otherwise the read must return the same result again. After a
commit, answers about one resource share reads where possible (`Siblings`); otherwise each answer
would need its own read. See docs/explanation/kept-answers.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, NamedTuple
from weakref import WeakValueDictionary

from cloudcore.db.base import Connection, Database, T
from cloudcore.serving.request_record import ObserverCache, RequestRecord

EXTENSION: Final = "entrepot.keep"
"""The ASGI extension, and the key of a `KeepTerms` in ``http.response.start``."""
MOST_HEAD_BYTES: Final = 8 * 1024
MOST_ANSWER_BYTES: Final = 64 * 1024
"""Longest head of a request, and longest answer, that are kept."""
ENTRY_BYTES: Final = 1500
ANSWER_BYTES: Final = 1500
"""Memory that an entry and an answer take, in bytes, besides the bytes that they hold."""
MOST_TOGETHER: Final = 64
"""Most answers that are proved by one read."""


class AnswerProof(NamedTuple):
    """Proves that an answer is unchanged: `look`, called with `given`, still returns `found`.

    The application read `found` before the content of its answer, or in the same statement. A
    changed value must not return to an earlier one, unless the answer is the same again too.
    """

    look: Callable[..., Hashable]
    given: tuple[Hashable, ...]
    found: Hashable
    revision: Callable[..., Hashable] | None = None
    """A cheaper read that many proofs share.

    Called with all of `given` but the last. While its result stays the same, the result of `look`
    stays the same too; but the result None proves nothing.
    """
    read_many: Callable[..., Mapping[Hashable, Hashable]] | None = None
    """One read in place of the `look` of several proofs that differ only in the last value of
    `given`.

    Called with all of `given` but the last, and a sequence of the proofs' last values. It maps
    these values to results of `look`; a missing value counts as None.
    """


class ProofResults(NamedTuple):
    """The results of the reads that prove some answers."""

    revision: Hashable
    """None if the revision was not read."""
    found: Sequence[Hashable]
    """The result for each answer."""


class Siblings:
    """State of answers whose `AnswerProof.given` are the same but for the last item."""

    __slots__ = ("__weakref__", "_lately", "_more", "_sent", "revision", "version")

    def __init__(self) -> None:
        self.version: int | None = None
        """Version of the database at the last read of some of these answers."""
        self.revision: Hashable = None
        """The answers' revision at that version; None if unknown."""
        self._sent: dict[KeptAnswer, None] = {}
        """The answers that have `read_many`; the one sent last is at the end."""
        self._lately = 0
        """How many answers were sent since the version changed."""
        self._more = 0
        """Maximum number of other answers that the next read proves too."""

    def note_sent(self, answer: KeptAnswer) -> None:
        """Mark an answer as sent, so that it is among the first to be proved after a commit."""
        self._sent.pop(answer, None)
        self._sent[answer] = None
        self._lately += 1

    def take(self, answer: KeptAnswer, version: int) -> list[KeptAnswer]:
        """Return `answer` and the siblings to prove in the same read, at this database version.

        The first read after a commit takes as many answers as were sent since the previous commit,
        each further read twice as many as the one before. So a lone client costs little, and many
        clients need few reads.
        """
        if version != self.version:
            self.version, self.revision = version, None
            self._more, self._lately = max(1, self._lately), 0
        most = min(self._more, MOST_TOGETHER - 1)
        self._more = 2 * most
        answer.taken = version
        last = islice(reversed(self._sent), 4 * MOST_TOGETHER)
        unread = (each for each in last if version not in (each.version, each.taken))
        others = list(islice(unread, most))
        for each in others:
            each.taken = version
        return [answer, *others]

    def drop(self, answer: KeptAnswer) -> None:
        """Remove an answer that is no longer cached."""
        self._sent.pop(answer, None)


class KeepTerms(NamedTuple):
    """The terms under which an answer may be sent again."""

    until: int
    """When the answer expires, in microseconds since the epoch."""
    proof: AnswerProof | None = None
    """None if the answer depends on nothing but the request."""
    noted: Callable[[], None] | None = None
    """Called each time the answer is sent again."""


class KeptAnswer:
    """A rendered answer, shared by all requests that have the same answer."""

    __slots__ = (
        "after", "before", "key", "looks_with_others", "proof", "revision", "siblings", "size",
        "status_line", "taken", "users", "version",
    )  # fmt: skip

    def __init__(self, key: AnswerKey, siblings: Siblings | None) -> None:
        self.key = key
        self.proof, self.status_line, self.before, self.after = key
        self.siblings = siblings
        self.looks_with_others = self.proof is not None and self.proof.read_many is not None
        self.version: int | None = None
        """Version of the database at the last proof of the answer."""
        self.taken: int | None = None
        """Version of the database for which a read of the answer was last begun, alone or with
        siblings."""
        self.revision: Hashable = None
        """Result of the proof's `revision` at the last proof."""
        self.size = ANSWER_BYTES + len(self.before) + len(self.after)
        self.users = 0

    def has_revision_of(self, version: int) -> bool:
        """Return True if the siblings' revision proves the answer unchanged at `version`."""
        siblings = self.siblings
        if siblings is None or siblings.version != version or siblings.revision is None:
            return False
        return self.revision == siblings.revision

    def note_sent(self) -> None:
        """Record that the answer was sent, so that it is proved early after the next commit."""
        if self.siblings is not None and self.looks_with_others and self.users:
            self.siblings.note_sent(self)

    def rendered(self, common: bytes, request_id: str) -> bytes:
        """Return the bytes to send, with the common header lines and a request id."""
        return b"".join((self.status_line, common, self.before, request_id.encode(), self.after))


class KeptEntry:
    """The kept answer for one request, and the parts of the record that its repeats share."""

    __slots__ = (
        "answer", "noted", "record", "record_end", "record_start", "server", "size", "until",
    )  # fmt: skip

    def __init__(
        self, answer: KeptAnswer, keep: KeepTerms, record: RequestRecord, server: object, size: int
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
        """Return the record for the same request, repeated by `client`."""
        start, end = self.record_start, self.record_end
        fields = (finished_at, seconds, request_id, *start, client, *end)
        return tuple.__new__(RequestRecord, fields)  # at half the cost of `_make`


AnswerKey = tuple[AnswerProof | None, bytes, bytes, bytes]


class KeptAnswers:
    """The kept answers of a worker, up to a number of bytes; evicts the least recently used."""

    def __init__(self, database: Database, clock: Callable[[], int], most_bytes: int) -> None:
        """Cache answers that were made from `database`."""
        self._version = database.version
        self._read = database.read
        self._clock = clock
        self._most_bytes = most_bytes
        self._entries: OrderedDict[bytes, KeptEntry] = OrderedDict()
        self._answers: dict[AnswerKey, KeptAnswer] = {}
        self._siblings: WeakValueDictionary[Hashable, Siblings] = WeakValueDictionary()
        self.bytes = 0
        """Memory that all kept answers take."""
        self._hits = self._confirmed = self._missed = 0

    def find(self, head: bytes) -> KeptEntry | None:
        """Return the kept answer for exactly these bytes, or None."""
        entry = self._entries.get(head)
        if entry is None:
            return None
        if self._clock() >= entry.until:
            self._drop(head)
            return None
        self._entries.move_to_end(head)
        return entry

    def prove(self, head: bytes, entry: KeptEntry) -> bool | Awaitable[bool]:
        """Return True if the answer is still the same; otherwise drop it and return False.

        If the database must be waited for, return an awaitable of that result.
        """
        answer = entry.answer
        proof = answer.proof
        if proof is None:
            self._hits += 1
            return True
        version = self._version()
        if version is not None:
            if version == answer.version:
                self._hits += 1
                answer.note_sent()
                return True
            if answer.has_revision_of(version):
                return self._confirm(answer, version)
        answers, revision = [answer], None
        if version is not None and answer.siblings is not None:
            answers = answer.siblings.take(answer, version)
            revision = answer.siblings.revision
        reading: Coroutine[Any, Any, ProofResults] = self._read(_look, answers, revision)
        try:
            waits_for = reading.send(None)
        except StopIteration as ended:
            return self._conclude(head, answers, version, ended.value)
        except Exception:  # noqa: BLE001 - the application meets it too, and says so
            return False
        return self._proved(head, answers, version, _Begun(reading, waits_for))

    async def _proved(
        self,
        head: bytes,
        answers: list[KeptAnswer],
        version: int | None,
        reading: _Begun[ProofResults],
    ) -> bool:
        try:
            return self._conclude(head, answers, version, await reading)
        except Exception:  # noqa: BLE001 - as in `prove`
            return False

    def _conclude(
        self, head: bytes, answers: list[KeptAnswer], version: int | None, looked: ProofResults
    ) -> bool:
        """Return True if the first of the answers is proved; drop that answer if it has changed.

        A change of any other answer is detected at the next request for it.
        """
        for answer, found in zip(answers[1:], looked.found[1:], strict=True):
            if answer.proof is not None and found == answer.proof.found:
                answer.version = version
        answer = answers[0]
        assert answer.proof is not None
        if answer.siblings is not None and answer.siblings.version == version:
            answer.siblings.revision = looked.revision
        if looked.found[0] != answer.proof.found:
            entry = self._entries.get(head)
            if entry is not None and entry.answer is answer:
                self._drop(head)
            return False
        answer.revision = looked.revision
        return self._confirm(answer, version)

    def _confirm(self, answer: KeptAnswer, version: int | None) -> bool:
        answer.version = version
        self._confirmed += 1
        answer.note_sent()
        return True

    def keep(
        self,
        head: bytes,
        keep: KeepTerms,
        status_line: bytes,
        rendered: bytes,
        record: RequestRecord,
        server: object,
    ) -> None:
        """Cache the answer to `head`: its status line, and all that follows the common lines.

        An answer that is too large, or in which the request id does not occur exactly once, is not
        cached.
        """
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
            answer = self._answers[key] = KeptAnswer(key, self._siblings_of(keep.proof))
            self.bytes += answer.size
        answer.users += 1
        # The record has path and query again, and the log line has much of the path once more.
        size = ENTRY_BYTES + len(head) + 2 * len(record.path) + len(record.query)
        entry = KeptEntry(answer, keep, record, server, size)
        self._entries[head] = entry
        self.bytes += entry.size
        self._missed += 1
        while self.bytes > self._most_bytes:
            self._drop(next(iter(self._entries)))

    def drop_ended(self) -> None:
        """Drop the answers that have expired, as they may be secret.

        This takes some 0.1 µs for each entry.
        """
        now = self._clock()
        for head in [head for head, entry in self._entries.items() if now >= entry.until]:
            self._drop(head)

    def take_counts(self) -> tuple[int, int, int]:
        """Return the counts since the last call.

        They are the answers sent at once, those sent after their proof was read again, and those
        that the application made and that were cached.
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
            if answer.siblings is not None:
                answer.siblings.drop(answer)

    def _siblings_of(self, proof: AnswerProof | None) -> Siblings | None:
        if proof is None or (proof.revision is None and proof.read_many is None):
            return None
        key = (proof.revision, proof.read_many, proof.given[:-1])
        return self._siblings.setdefault(key, Siblings())


def _look(tx: Connection, answers: Sequence[KeptAnswer], revision: Hashable) -> ProofResults:
    """Run the read that proves `answers`, which are siblings; for several, it is `read_many`.

    `revision` is their current revision, which does not prove them, or None if it is unknown.
    """
    proofs = [answer.proof for answer in answers if answer.proof is not None]
    first = proofs[0]
    if len(proofs) > 1:
        assert first.read_many is not None
        found = first.read_many(tx, *first.given[:-1], [proof.given[-1] for proof in proofs])
        return ProofResults(None, [found.get(proof.given[-1]) for proof in proofs])
    if revision is None and first.revision is not None:
        # Before the look: a change between the two is noticed at the next proof.
        revision = first.revision(tx, *first.given[:-1])
        if revision is not None and revision == answers[0].revision:
            return ProofResults(revision, [first.found])
    return ProofResults(revision, [first.look(tx, *first.given)])


class _Begun(Generic[T]):
    """A coroutine that ran to its first wait outside of any task, to be continued in a task."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waits_for: object) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        yield self._waits_for
        return (yield from self._coroutine.__await__())
