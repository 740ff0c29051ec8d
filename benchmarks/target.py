"""A registry to be measured: its URL, and what was stored in it beforehand."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field

from benchmarks import exchanges
from benchmarks.bodies import BodyMaker
from benchmarks.committer import committing
from benchmarks.servers import Server
from benchmarks.wire import Connection, ExchangeFailedError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

BLOB_COUNTS = {4 * KIB: 64, 16 * KIB: 64, 64 * KIB: 64, MIB: 16, 64 * MIB: 4, GIB: 1}
SMALL_BYTES = 16 * KIB
"""Size up to which blobs to pull are pushed whole: ours may keep such ones in its database."""
MANIFEST_COUNT = 64
TAG_COUNT = 10_000
SEEDING_CLIENTS = 4
DISK_BYTES = 8 * GIB  # after pushes of this size, restart our server on an empty folder


@dataclass(frozen=True)
class StoredManifest:
    """A manifest that the target has."""

    tag: str
    digest: str
    size_bytes: int


@dataclass
class Target:
    """A registry and its name in the report; `server` is set if this run starts it."""

    name: str
    notes: str
    maker: BodyMaker
    namespace: str
    progress: Callable[[str], None]
    server: Server | None = None
    base_url: str = ""
    known_pid: int | None = None
    pushed_bytes: int = 0
    _blobs: dict[int, list[str]] = field(default_factory=dict)
    _manifests: list[StoredManifest] = field(default_factory=list)
    _tagged: bool = False
    _takes_post: bool | None = None
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def url(self) -> str:
        """Return its base URL."""
        return self.server.url if self.server else self.base_url

    @property
    def pids(self) -> list[int]:
        """Return the ids of its main processes, its own and its database's; none if unknown."""
        if self.server:
            return self.server.pids
        return [] if self.known_pid is None else [self.known_pid]

    @property
    def repository(self) -> str:
        """Return the name of the repository for pulls and pushes."""
        return f"{self.namespace}/bench"

    @property
    def tagged_repository(self) -> str:
        """Return the name of the repository with 10,000 tags."""
        return f"{self.namespace}/bench-tags"

    def connect(self) -> closing[Connection]:
        """Return a new connection that is closed at the end of a ``with`` block."""
        return closing(self.connection())

    def connection(self) -> Connection:
        """Return a new connection, signed in if that is needed."""
        return self.server.connection() if self.server else Connection(self.url)

    def blobs(self, size_bytes: int) -> list[str]:
        """Return the digests of stored blobs of one size; store and verify them first."""
        if size_bytes not in self._blobs:
            self.progress(f"{self.name}: storing and verifying blobs of {size_bytes} bytes")
            with self.connect() as connection:
                push = self.push_whole() if size_bytes <= SMALL_BYTES else exchanges.push_streamed
                self._blobs[size_bytes] = [
                    push(connection, self.repository, self.maker, size_bytes)
                    for _ in range(BLOB_COUNTS[size_bytes])
                ]
                for digest in self._blobs[size_bytes]:
                    self.verify_blob(digest, connection)
        return self._blobs[size_bytes]

    def verify_blob(self, digest: str, connection: Connection) -> None:
        """Pull a blob and check its digest."""
        exchanges.verify(connection, f"/v2/{self.repository}/blobs/{digest}", digest)

    def manifests(self) -> list[StoredManifest]:
        """Return stored manifests, each with a tag of its own; store and verify them first."""
        if not self._manifests:
            manifest = self.manifest_maker(self.repository)
            with self.connect() as connection:
                for number in range(MANIFEST_COUNT):
                    tag, content = f"v{number}", manifest()
                    digest = exchanges.digest_of(content)
                    exchanges.put_manifest(connection, self.repository, tag, content)
                    for reference in (tag, digest):
                        target = f"/v2/{self.repository}/manifests/{reference}"
                        exchanges.verify(connection, target, digest, exchanges.ACCEPT_MANIFEST)
                    self._manifests.append(StoredManifest(tag, digest, len(content)))
        return self._manifests

    def manifest_maker(self, repository: str) -> Callable[[], bytes]:
        """Store a config and a layer in `repository`; return a function that makes manifests."""
        with self.connect() as connection:
            config, layer = (
                (exchanges.push_streamed(connection, repository, self.maker, size), size)
                for size in (KIB, 4 * KIB)
            )
        return lambda: exchanges.image_manifest(config, layer, f"number {self.next_number()}")

    def store_tags(self) -> None:
        """Store 10,000 tags of one manifest, once."""
        if self._tagged:
            return
        self.progress(f"{self.name}: storing {TAG_COUNT} tags")
        content = self.manifest_maker(self.tagged_repository)()
        tags = iter([f"t{number:05d}" for number in range(TAG_COUNT)])
        lock, failures = threading.Lock(), []

        def put_tags() -> None:
            try:
                with self.connect() as connection:
                    while True:
                        with lock:
                            tag = next(tags, None)
                        if tag is None:
                            return
                        exchanges.put_manifest(connection, self.tagged_repository, tag, content)
            except (OSError, ExchangeFailedError) as error:
                failures.append(error)

        threads = [threading.Thread(target=put_tags) for _ in range(SEEDING_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        self._tagged = True

    def committing(self) -> AbstractContextManager[None]:
        """Return a block during which something else commits to the database, if it is ours."""
        if self.server is None or not self.server.database_url:
            return nullcontext()
        return committing(self.server.database_url, self.tagged_repository.partition("/")[2])

    def push_whole(self) -> Callable[[Connection, str, BodyMaker, int], str]:
        """Return the exchange that pushes a blob in as few requests as it takes."""
        return exchanges.push_post if self.takes_post() else exchanges.push_put

    def takes_post(self) -> bool:
        """Return True if it takes a blob in one POST (end-4b is optional)."""
        if self._takes_post is None:
            with self.connect() as connection:
                self._takes_post = exchanges.takes_post(connection, self.repository, self.maker)
        return self._takes_post

    def next_number(self) -> int:
        """Return a number for a unique name."""
        return next(self._numbers)

    def start(self) -> None:
        """Start it if this run starts it."""
        if self.server:
            self.server.start()

    def stop(self) -> None:
        """Stop it if this run started it."""
        if self.server:
            self.server.stop()

    def make_room(self, stored_bytes: int) -> None:
        """Count `stored_bytes` of pushes; restart the server empty before the disk is full."""
        self.pushed_bytes += stored_bytes
        if self.server and self.pushed_bytes > DISK_BYTES:
            self.server.stop()
            self.server.start()
            self.pushed_bytes = 0
            self._blobs.clear()
            self._manifests.clear()
            self._tagged = False
