"""Some nodes that write to one upload, in an order chance draws, and what must hold.

Each node has a clock of its own and sends chunks of its own bytes, so that bytes of another show.
What the rows acknowledge is noted where it commits. Nothing but the lease keeps nodes apart: the
stores here let any number of them open the same bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, cast

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database, OutcomeUnknown, P, T
from cloudcore.errors import Conflict, InvalidInput, NotFound, Unavailable
from cloudcore.kms.services import KeyMaker
from registry.blobstore.base import SEALED
from registry.blobstore.store import BlobStore
from registry.errors import DigestMismatch, UploadUnknown
from registry.gc.purge import discard_expired_uploads
from registry.metadata.blobs.uploads import Lease
from registry.metadata.repositories.repository import (
    add_account,
    find_account,
    find_or_add_repository,
)
from registry.oci.digest import Digest, digest_of
from registry.oci.reference import parse_name
from registry.services.blobs import uploads
from registry.services.blobs.reading import open_blob, stat_blob
from registry.services.blobs.upload_bodies import Chunk, Span
from registry.services.blobs.upload_ids import RepositoryIds, UploadIds, UploadSession
from registry.services.blobs.upload_leases import LEASE, Leases
from registry.services.blobs.upload_sessions import get_session
from registry.services.changes import RegistryHost
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys
from registry.services.images.pulls import PullLog
from registry.settings.groups import Limits
from tests.dying import PassingDatabase
from tests.inprocess import PROVIDERS, START
from tests.property.interleaved_stores import OneConnection, SteppedStore
from tests.property.interleaving import Died, Interleaving, drive
from tests.property.lone_vault import LoneVault

NODES: Final = ("one", "two", "three")
NAME: Final = parse_name("dev/app")
IDLE_SECONDS: Final = 400
SEALS: Final = 0.5
"""How often a run seals what it is sent."""
ACTIONS: Final = ("append",) * 5 + ("cut short",) * 2 + ("out of order", "finish", "renew", "sweep")
RARE: Final = ("mismatch", "cancel")


@dataclass
class Node:
    """A worker process, and the bytes it is sending."""

    name: str
    ctx: ServiceContext
    sent: bytes = b""
    action: str = ""


class NotingDatabase(PassingDatabase):
    """Notes what commits, and now and then does not tell the caller."""

    def __init__(self, database: OneConnection, world: World, node: str) -> None:
        super().__init__(database)
        self._world = world
        self._node = node

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write; the answer, or the change with it, may be lost."""

        def noted(tx: Connection, /, *given: P.args, **named: P.kwargs) -> T:
            result = change(tx, *given, **named)
            self._world.note(self._node, name, args, result)
            return result

        name = getattr(change, "__name__", "change")
        noted.__name__ = name
        chance = self._world.rng.random()
        if chance < self._world.loss:
            raise OutcomeUnknown("lost before the commit")
        result = await self._database.write(noted, *args, **kwargs)
        if chance > 1 - self._world.loss:
            raise OutcomeUnknown("lost after the commit")
        return result

    write_relaxed = write

    async def close(self) -> None:
        """Do nothing: another node may use the database."""


@dataclass
class World:
    """One upload, and all that happens to it in a run."""

    database: OneConnection
    rng: random.Random
    tally: Counter[str] = field(default_factory=Counter)
    loss: float = 0.0
    told: set[int] = field(default_factory=set)
    """The tokens under which something was acknowledged."""
    content: bytes = b""
    """What the rows have acknowledged."""
    ended_by: str = ""
    blob: bytes | None = None

    def open(self, seed: int, make_store: Callable[[], BlobStore]) -> None:
        """Begin a run."""
        self.rng.seed(seed)
        self.database.begin()
        self.told, self.content, self.ended_by, self.blob = set(), b"", "", None
        self.interleaving = self.database.interleave(self.rng)
        self.store = make_store()
        self.now, self.dead = START, set[str]()
        self.loss = self.rng.choice([0, 0, 0.02, 0.1])
        self.seals = self.rng.random() < SEALS
        self.nodes = [self._node(name) for name in NODES[: self.rng.choice([2, 3])]]
        place = drive(self.database.write(_add_repository, self.now))
        self.upload_id = UploadIds().new(place, None, self.now)
        maker = KeyMaker(PROVIDERS, "local", lambda: uuid7(self.now))
        drive(self.database.write(drive(maker.prepare_platform_key(place.account_id, self.now))))

    def close(self) -> None:
        """Take back what the run did."""
        self.database.interleaving = None
        self.database.undo()

    def note(self, node: str, name: str, args: tuple[Any, ...], result: object) -> None:
        """Note what a change does to the upload; it commits."""
        sender = next(each for each in self.nodes if each.name == node)
        if name == "_take":
            shared = result.upload.stage_shared  # type: ignore[attr-defined]
            self.tally["copied" if shared else "taken"] += 1
        elif name == "advance_upload":
            self._note_advance(sender, args, is_done=bool(result))
        elif name == "remove_upload" and result:
            assert sender.action in ("mismatch", "cancel", "sweep"), "acknowledged bytes are gone"
            self._note_end(sender.action)
        elif name == "_record_rows" and result is not None:
            self._note_end("finish")
            self.blob = self.content + sender.sent

    def _note_advance(self, sender: Node, args: tuple[Any, ...], *, is_done: bool) -> None:
        lease, size = args[0], args[1].size
        assert isinstance(lease, Lease)
        if not is_done:
            self.tally["fenced"] += 1
        elif lease.token not in self.told:
            self.told.add(lease.token)
            assert size == len(self.content) + len(sender.sent), "somebody else has appended"
            self.content += sender.sent
            self.tally["acknowledged"] += 1

    def _note_end(self, how: str) -> None:
        assert not self.ended_by, f"ended twice: {self.ended_by}, {how}"
        self.ended_by = how
        self.tally[how] += 1

    def play(self) -> None:
        """Let all nodes write at once while time passes, then check."""
        fatal = [self.rng.choice([None, None, self.rng.randint(5, 60)]) for _ in self.nodes]
        tasks = [
            (node.name, self._work_of(node), step)
            for node, step in zip(self.nodes, fatal, strict=True)
        ]
        self.interleaving.run([*tasks, ("time", self._pass_time, None)])
        self._check()

    def _work_of(self, node: Node) -> Callable[[], None]:
        def work() -> None:
            try:
                for number in range(self.rng.randint(2, 7)):
                    actions = RARE if self.rng.random() < 0.04 else ACTIONS
                    node.action = self.rng.choice(actions)
                    node.sent = f"{node.name}{number}".encode() * self.rng.randint(0, 3)
                    with suppress(Conflict, NotFound, InvalidInput, Unavailable):
                        drive(self._act(node))
            except Died:
                self.dead.add(node.ctx.leases.holder)
                self.tally["died"] += 1
                raise

        return work

    async def _act(self, node: Node) -> None:
        ctx = node.ctx
        if node.action == "renew":
            await ctx.leases.renew(ctx.database, ctx.clock)
            return
        if node.action == "sweep":
            await discard_expired_uploads(ctx)
            return
        if node.action == "cancel":
            await uploads.cancel_upload(ctx, NAME, self.upload_id)
            return
        session = await ctx.database.read(self._get, ctx)
        first = session.upload.received_bytes + (node.action == "out of order")
        data, node.sent = node.sent, b""
        chunk = Chunk(
            _Body(node, data, self.interleaving, is_whole=node.action != "cut short"),
            None,
            Span(first, len(data)),
        )
        if node.action in ("finish", "mismatch"):
            expected = digest_of(self.content + data)
            if node.action == "mismatch":
                expected = digest_of(b"of other bytes")
            await self._finish(node, Digest(expected), chunk)
        else:
            await uploads.append_chunk(ctx, NAME, self.upload_id, chunk)

    async def _finish(self, node: Node, expected: Digest, chunk: Chunk) -> None:
        try:
            await uploads.finish_upload(node.ctx, NAME, self.upload_id, expected, chunk)
        except DigestMismatch:
            assert node.action == "mismatch", "the staged bytes are not what was acknowledged"
            raise

    def _get(self, tx: Connection, ctx: ServiceContext) -> UploadSession:
        return get_session(tx, ctx, NAME, self.upload_id, ctx.clock())

    def _pass_time(self) -> None:
        for _ in range(self.rng.randint(0, 25)):
            self.interleaving.step("time passes")
            self.now += self.rng.choice([LEASE // 4, LEASE + MICROSECONDS])

    def _check(self) -> None:
        """Check that what was acknowledged is there, whole."""
        self.loss = 0.0
        self.dead.update(node.ctx.leases.holder for node in self.nodes)
        last = self._node("last")
        last.action, last.sent = "finish", b""
        self.nodes.append(last)
        try:
            session = drive(last.ctx.database.read(self._get, last.ctx))
        except UploadUnknown:
            assert self.ended_by or self.now > START + IDLE_SECONDS * MICROSECONDS
        else:
            assert session.upload.received_bytes == len(self.content)
            chunk = Chunk(_Body(last, b"", self.interleaving, is_whole=True), None)
            drive(self._finish(last, Digest(digest_of(self.content)), chunk))
        if self.blob is not None:
            digest = digest_of(self.blob)
            found = drive(stat_blob(last.ctx, NAME, digest))
            assert (found.link.encoding == SEALED) == self.seals
            self.tally[found.link.encoding] += 1
            opened = drive(open_blob(last.ctx, NAME, found))
            assert b"".join(map(bytes, opened.chunks())) == self.blob
            drive(opened.aclose())

    def _node(self, name: str) -> Node:
        holder = uuid7(self.now)
        skew = self.rng.randint(-2, 2) * MICROSECONDS

        def clock() -> int:
            return self.now + skew

        database: Database = NotingDatabase(self.database, self, name)
        store = cast("BlobStore", SteppedStore(self.store, self.interleaving.step))
        ctx = ServiceContext(
            database=database,
            reader=store,
            writer=store,
            clock=clock,
            new_id=lambda: uuid7(self.now),
            limits=Limits(upload_idle_seconds=IDLE_SECONDS),
            pulls=PullLog(database, clock),
            registry_host=RegistryHost("local", "registry.example"),
            leases=Leases(holder, self.dead.__contains__),
            data_keys=DataKeys(LoneVault(database, PROVIDERS, clock)),
            seals=self.seals,
        )
        return Node(name, ctx)


class _Body:
    """A request body that arrives in two parts, with steps of others in between."""

    def __init__(
        self, node: Node, data: bytes, interleaving: Interleaving, *, is_whole: bool
    ) -> None:
        self._node = node
        self._data = data
        self._step = interleaving.step
        self._is_whole = is_whole

    async def __call__(self, sink: Callable[[memoryview], None], finish: Callable[[bool], T]) -> T:
        """Move it (`registry.services.blobs.uploads.Body`)."""
        half = len(self._data) // 2
        for part in (self._data[:half], self._data[half:]):
            self._step("receive")
            sink(memoryview(part))
            self._node.sent += part
        self._step("received")
        return finish(self._is_whole)


@contextmanager
def noted(world: World, seed: int) -> Iterator[None]:
    """Add to what fails how to repeat it, and what happened."""
    try:
        yield
    except BaseException as error:
        steps = "\n".join(world.interleaving.trace[-200:])
        error.add_note(f"LEASE_SEED={seed} LEASE_RUNS=1\n{steps}")
        raise


def _add_repository(tx: Connection, now: int) -> RepositoryIds:
    add_account(tx, uuid7(now), NAME.handle, now)
    account = find_account(tx, NAME.handle)
    assert account is not None
    made = find_or_add_repository(tx, uuid7(now), account, NAME.repository, now)
    return RepositoryIds(made.id, account.id)
