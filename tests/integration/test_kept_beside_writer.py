"""Whoever reads beside a writer gets what was true while it asked, also from what is kept.

The writer says when each change began and ended, and what a plane that keeps nothing answers after
it. Each answer of a server that keeps them must be one of those between the last change that had
ended when it was asked for, and the last that had begun when it came.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.db.base import CommitMark
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.settings.groups import Limits
from tests.databases import on_both_databases
from tests.inprocess import Answer, Client, ManualClock, open_registry
from tests.memory_store import MemoryStore
from tests.wired import WireClient, wired

pytestmark = on_both_databases

BASE: Final = "/v2/dev/app"
BLOBS: Final = (b"one", b"another")
CHANGES: Final = 24
READERS: Final = 3
ANSWERS: Final = 12
"""Answers that readers get, on average, between two changes, however fast the disk is."""


def image(number: int) -> bytes:
    """Return one of two images and of two signatures of the first image."""
    data = BLOBS[number % 2]
    config = {"mediaType": "application/x", "digest": digest_of(data), "size": len(data)}
    made: dict[str, object] = {"schemaVersion": 2, "config": config, "layers": []}
    if number > 1:
        of = {"mediaType": OCI_MANIFEST, "digest": digest_of(image(0)), "size": len(image(0))}
        made |= {"subject": of, "annotations": {"number": str(number)}}
    return json.dumps(made).encode()


IMAGES: Final = [image(number) for number in range(4)]
TAGS: Final = ("v1", "v2")
READS: Final = [
    (method, f"{BASE}/{path}")
    for path in (
        *(f"manifests/{reference}" for reference in (*TAGS, *map(digest_of, IMAGES))),
        *(f"blobs/{digest_of(data)}" for data in BLOBS),
        *("tags/list", "tags/list?n=1", f"referrers/{digest_of(IMAGES[0])}"),
    )
    for method in ("GET", "HEAD")
]


class Asked(NamedTuple):
    """What was read, between two moments."""

    read: tuple[str, str]
    begun: int
    answer: Answer
    ended: int


@dataclass
class History:
    """The changes in their order, and what is true after each."""

    moments: itertools.count[int] = field(default_factory=itertools.count)
    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    true: list[dict[tuple[str, str], Answer]] = field(default_factory=list)
    answers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def change(self, writer: Client, *request: object) -> None:
        """Make a change, and see what is true then."""
        self.begun.append(next(self.moments))
        await writer.request(*request)  # type: ignore[arg-type]
        self.ended.append(next(self.moments))
        self.true.append({read: plain(await writer.request(*read)) for read in READS})

    def allowed(self, asked: Asked) -> list[Answer]:
        """Return the answers that a server without kept ones could have given."""
        first = max(n for n, moment in enumerate(self.ended) if moment < asked.begun)
        last = max(n for n, moment in enumerate(self.begun) if moment < asked.ended)
        return [self.true[n][asked.read] for n in range(first, last + 1)]


def plain(answer: Answer) -> Answer:
    """Return an answer without what differs from one to the next."""
    left = {n: v for n, v in answer.headers.items() if n not in ("x-request-id", "date")}
    return answer._replace(headers=left)


async def write(history: History, writer: Client, rng: random.Random) -> None:
    """Push, move tags and delete at random."""
    kind = {"content-type": OCI_MANIFEST}
    for _ in range(CHANGES):
        body, data = rng.choice(IMAGES), rng.choice(BLOBS)
        uploads = f"{BASE}/blobs/uploads/?digest={digest_of(data)}"
        reference = rng.choice((*TAGS, *TAGS, digest_of(body)))
        requests = (
            ("PUT", f"{BASE}/manifests/{reference}", body, kind),
            ("DELETE", f"{BASE}/manifests/{reference}"),
            ("DELETE", f"{BASE}/blobs/{digest_of(data)}"),
            ("POST", uploads, data),
        )
        await history.change(writer, *rng.choices(requests, (6, 2, 1, 2))[0])
        for _ in range(ANSWERS):
            await history.answers.acquire()


async def read(
    history: History, reader: WireClient, rng: random.Random, writing: asyncio.Task[None]
) -> list[Asked]:
    """Ask at random until the writer has ended."""
    found = []
    while not writing.done():
        chosen = rng.choice(READS)
        begun = next(history.moments)
        answer = await reader.ask(*chosen)
        history.answers.release()
        found.append(Asked(chosen, begun, plain(answer), next(history.moments)))
    return found


async def test_each_answer_was_true_while_it_was_asked_for(metadata_url: str) -> None:
    store, clock, mark, history = MemoryStore(), ManualClock(), CommitMark(), History()
    async with AsyncExitStack() as stack:
        writer, *others = [
            await stack.enter_async_context(
                open_registry(metadata_url, store, clock=clock, limits=Limits(), mark=mark)
            )
            for _ in range(3)
        ]
        readers = [await stack.enter_async_context(wired(one.app, one.ctx)) for one in others]
        for data in BLOBS:
            uploads = f"{BASE}/blobs/uploads/?digest={digest_of(data)}"
            await history.change(writer.client, "POST", uploads, data)
        writing = asyncio.create_task(write(history, writer.client, random.Random(1)))
        found = await asyncio.gather(
            *(
                read(history, reader, random.Random(n), writing)
                for n, reader in enumerate(readers * READERS)
            )
        )
        await writing
    for asked in itertools.chain(*found):
        assert asked.answer in history.allowed(asked), asked.read
    counts = [reader.kept.take_counts()[1:] for reader in readers if reader.kept is not None]
    assert len(counts) == len(readers)
    for each in counts:
        assert min(each) > 0, "answers confirmed and missed, by each server"
    assert min(map(sum, zip(*counts, strict=True))) > 40, "and by both"
