"""The kinds of requests whose work is counted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, NamedTuple

from benchmarks import exchanges
from benchmarks.bodies import BodyMaker
from benchmarks.polling import Request
from benchmarks.servers import Server
from benchmarks.wire import Connection

KIB: Final = 1 << 10
MIB: Final = 1 << 20
REPOSITORY: Final = "dev/work"
SOURCE: Final = "dev/work-source"


class Case(NamedTuple):
    """A kind of exchange; `prepare` stores what it needs and returns the exchange."""

    name: str
    prepare: Callable[[World], exchanges.Exchange]
    times: int = 32
    """How many exchanges a batch has."""
    is_endless: bool = True
    """The exchange can be repeated for as long as one likes."""
    is_large: bool = False
    """Its body is larger than a socket's buffer."""
    is_kept: bool = False
    """The answer is given again from memory (`docs/explanation/kept-answers.md`)."""


class World:
    """A running registry, and a client."""

    def __init__(self, server: Server, maker: BodyMaker) -> None:
        self.server = server
        self.maker = maker
        self.connection = server.connection()
        self._numbers = itertools.count()

    def number(self) -> int:
        """Return a number that was not returned before."""
        return next(self._numbers)

    def small_blob(self, repository: str = REPOSITORY) -> str:
        """Push a blob of 4 KiB; return its digest."""
        return exchanges.push_post(self.connection, repository, self.maker, 4 * KIB)

    def manifest(self) -> bytes:
        """Return a manifest that is new; its blobs are stored."""
        config, layer = ((self.small_blob(), 4 * KIB) for _ in range(2))
        return exchanges.image_manifest(config, layer, f"number {self.number()}")

    def repeated(self, method: str, target: str, *headers: str) -> exchanges.Exchange:
        """Return an exchange that sends one request again and again."""
        connection = self.connection
        data = connection.request(method, target, *headers)
        connection.send(data)
        head = connection.head()
        length = head.body_bytes or 0
        if method != "HEAD":
            connection.discard(head)
        request = Request(data, head.status, length, method != "HEAD")
        return lambda used: _exchange(used, request)


def _exchange(connection: Connection, request: Request) -> int:
    if request.has_body:
        return exchanges.pull(connection, request)
    connection.send(request.data)
    exchanges.expect(connection.head(), request.status, "HEAD")
    return 0


def _tagged(method: str) -> Callable[[World], exchanges.Exchange]:
    def prepare(world: World) -> exchanges.Exchange:
        tag = f"v{world.number()}"
        exchanges.put_manifest(world.connection, REPOSITORY, tag, world.manifest())
        return world.repeated(method, f"/v2/{REPOSITORY}/manifests/{tag}")

    return prepare


def _by_digest(world: World) -> exchanges.Exchange:
    manifest = world.manifest()
    exchanges.put_manifest(world.connection, REPOSITORY, "d", manifest)
    digest = exchanges.digest_of(manifest)
    return world.repeated("GET", f"/v2/{REPOSITORY}/manifests/{digest}")


def _blob(method: str, size_bytes: int) -> Callable[[World], exchanges.Exchange]:
    def prepare(world: World) -> exchanges.Exchange:
        push = exchanges.push_post
        digest = push(world.connection, REPOSITORY, world.maker, size_bytes)
        return world.repeated(method, f"/v2/{REPOSITORY}/blobs/{digest}")

    return prepare


def _push(
    push: Callable[[Connection, str, BodyMaker, int], str], size_bytes: int
) -> Callable[[World], exchanges.Exchange]:
    def prepare(world: World) -> exchanges.Exchange:
        def exchange(connection: Connection) -> int:
            push(connection, REPOSITORY, world.maker, size_bytes)
            return size_bytes

        return exchange

    return prepare


def _mount(world: World) -> exchanges.Exchange:
    digests = [world.small_blob(SOURCE) for _ in range(200)]
    unused = iter(digests)

    def exchange(connection: Connection) -> int:
        query = f"mount={next(unused)}&from={SOURCE}"
        target = f"/v2/{REPOSITORY}/blobs/uploads/?{query}"
        connection.send(connection.request("POST", target, "Content-Length: 0"))
        head = connection.head()
        connection.discard(head)
        exchanges.expect(head, 201, "mount")
        return 0

    return exchange


def _put_manifest(world: World) -> exchanges.Exchange:
    blobs = [(world.small_blob(), 4 * KIB) for _ in range(2)]

    def exchange(connection: Connection) -> int:
        number = world.number()
        manifest = exchanges.image_manifest(blobs[0], blobs[1], f"number {number}")
        return exchanges.put_manifest(connection, REPOSITORY, f"v{number}", manifest)

    return exchange


def _tags(world: World) -> exchanges.Exchange:
    _tagged("GET")(world)
    return world.repeated("GET", f"/v2/{REPOSITORY}/tags/list?n=100")


def _referrers(world: World) -> exchanges.Exchange:
    manifest = world.manifest()
    exchanges.put_manifest(world.connection, REPOSITORY, "subject", manifest)
    digest = exchanges.digest_of(manifest)
    descriptor = {
        "mediaType": exchanges.MANIFEST_TYPE,
        "digest": digest,
        "size": len(manifest),
    }
    referrer = json.dumps({**json.loads(world.manifest()), "subject": descriptor}).encode()
    reference = exchanges.digest_of(referrer)
    exchanges.put_manifest(world.connection, REPOSITORY, reference, referrer)
    return world.repeated("GET", f"/v2/{REPOSITORY}/referrers/{digest}")


def _token(world: World) -> exchanges.Exchange:
    bearers = world.server.bearers
    assert bearers is not None
    with closing(Connection(world.server.url, bearers.basic_header)) as signing_in:
        data = signing_in.request("GET", bearers.token_target)

    def exchange(connection: Connection) -> int:
        connection.send(data)
        head = connection.head()
        exchanges.expect(head, 200, "token")
        return connection.discard(head)

    return exchange


def cases() -> Iterator[Case]:
    """Return all cases, in the order of the table."""
    yield Case("manifest GET by tag", _tagged("GET"), is_kept=True)
    yield Case("manifest HEAD by tag", _tagged("HEAD"), is_kept=True)
    yield Case("manifest GET by digest", _by_digest, is_kept=True)
    yield Case("blob GET 4 KiB", _blob("GET", 4 * KIB), is_kept=True)
    yield Case("blob HEAD", _blob("HEAD", 4 * KIB), is_kept=True)
    yield Case("blob GET 64 KiB", _blob("GET", 64 * KIB))
    yield Case("blob GET 8 MiB", _blob("GET", 8 * MIB), 4, is_large=True)
    yield Case("tag page", _tags, is_kept=True)
    yield Case("referrers", _referrers, is_kept=True)
    yield Case("token", _token)
    yield Case("mount", _mount, is_endless=False)
    yield Case("push 4 KiB, one request", _push(exchanges.push_post, 4 * KIB))
    yield Case("push 4 KiB, two requests", _push(exchanges.push_put, 4 * KIB))
    yield Case("push 4 KiB, three requests", _push(exchanges.push_streamed, 4 * KIB))
    yield Case("push 8 MiB, one request", _push(exchanges.push_post, 8 * MIB), 4, is_large=True)
    yield Case(
        "push 8 MiB, three requests", _push(exchanges.push_streamed, 8 * MIB), 4, is_large=True
    )
    yield Case("manifest PUT", _put_manifest)
