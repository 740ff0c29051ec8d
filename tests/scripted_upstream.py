"""A registry on a loopback port that holds what a test gives it, and lies as a test tells it to.

It runs in a thread of its own, so a test on an event loop, and one with a served process, use it
alike. What was asked of it is in `asked`, heads and all.

    with scripted_upstream() as upstream:
        digest = upstream.add_blob(b"layer")
        manifest = upstream.add_image("library/alpine", "3.20", b"layer", b"another")
        upstream.script = lambda asked: Answer(429, {"Retry-After": "7"}) if … else None
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.waiting import close_server, turns

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"

Headers = dict[str, str]


class End(Enum):
    """How a connection ends in the middle of an answer."""

    CLOSE = "close"
    RESET = "reset"


Piece = bytes | threading.Event | End
"""Bytes to send, a signal to wait for, or the end of the connection."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    target: str
    headers: Headers
    """Names in lower case."""
    body: bytes = b""

    @property
    def path(self) -> str:
        """Return the target without its query."""
        return self.target.partition("?")[0]

    def query(self, name: str) -> str | None:
        """Return the first value of a parameter, or None."""
        return next(iter(parse_qs(urlsplit(self.target).query).get(name, ())), None)


@dataclass(frozen=True)
class Answer:
    """An answer. Without a length of its own it gets the right one."""

    status: int = 200
    headers: Mapping[str, str | None] = field(default_factory=dict)
    """`None` leaves out a header that would be sent otherwise."""
    body: bytes | Sequence[Piece] = b""
    raw: bytes | None = None
    """Sent instead of all the above; then the connection is closed."""
    late: bytes = b""
    """Sent once the next request has come by the same connection, before the answer to it."""


Script = Callable[[Asked], Answer | None]


def digest_of(data: bytes) -> str:
    """Return the sha256 digest of some bytes."""
    return f"sha256:{sha256(data).hexdigest()}"


@dataclass
class ScriptedUpstream:
    """The registry, and what it says next."""

    url: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """By digest; in every repository."""
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    """Media type and body by repository and tag, or digest."""
    auth: str = "none"
    """``none``, ``bearer`` (tokens from its own ``/token``) or ``basic``."""
    username: str = ""
    """With a secret, what ``/token`` or Basic wants; without, tokens are for everyone."""
    secret: str = ""
    has_referrers: bool = True
    has_ranges: bool = True
    most_tags: int = 100
    """On a page of tags."""
    token_seconds: int = 300
    script: Script = lambda _asked: None
    """What to answer instead of the truth; None: the truth."""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    tokens: dict[str, str] = field(default_factory=dict)
    """The scope of each token that is valid."""
    given: int = 0
    """How many tokens were given."""
    held: set[threading.Event] = field(default_factory=set)
    """What answers wait for; set at the end, so that no thread stays."""

    @property
    def host(self) -> str:
        """Return host and port."""
        return self.url.partition("://")[2]

    def add_blob(self, data: bytes) -> str:
        """Hold a blob; return its digest."""
        self.blobs[digest_of(data)] = data
        return digest_of(data)

    def add_manifest(
        self, repository: str, tag: str | None, document: Mapping[str, Any] | bytes
    ) -> str:
        """Hold a manifest or index under its digest and a tag; return the digest."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        media_type = json.loads(body).get("mediaType", MANIFEST)
        digest = digest_of(body)
        for reference in filter(None, (digest, tag)):
            self.manifests[repository, reference] = (media_type, body)
        return digest

    def add_image(self, repository: str, tag: str | None, *layers: bytes, **more: Any) -> str:  # noqa: ANN401
        """Hold an image with these layers; return the digest of its manifest."""
        config = json.dumps({"architecture": "amd64", "os": "linux", "for": repository}).encode()
        self.add_blob(config)
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, config),
            "layers": [descriptor(LAYER, layer) for layer in layers],
            **more,
        }
        for layer in layers:
            self.add_blob(layer)
        return self.add_manifest(repository, tag, document)

    def add_index(self, repository: str, tag: str | None, *digests: str) -> str:
        """Hold an index of images that it holds; return the digest of the index."""
        children = [descriptor(*self.manifests[repository, digest]) for digest in digests]
        for child, architecture in zip(children, ("amd64", "arm64", "riscv64"), strict=False):
            if child["mediaType"] != INDEX:
                child["platform"] = {"os": "linux", "architecture": architecture}
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": children}
        return self.add_manifest(repository, tag, document)

    def asked_for(self, method: str, path: str) -> list[Asked]:
        """Return the requests of a method whose path ends so."""
        found = [each for each in self.asked if each.method == method]
        return [each for each in found if each.path.endswith(path)]

    def answer(self, asked: Asked) -> Answer:
        """Return the answer of the script, or else the truth."""
        self.asked.append(asked)
        told = self.script(asked)
        return self.truth(asked) if told is None else told

    def truth(self, asked: Asked) -> Answer:
        """Return what an honest registry answers."""
        if asked.path == "/token":
            return self._token(asked)
        refusal = self._refusal(asked)
        if refusal is not None:
            return refusal
        if asked.path in ("/v2/", "/v2"):
            return Answer(200, {"Content-Type": "application/json"}, b"{}")
        name, slash, last = asked.path.removeprefix("/v2/").rpartition("/")
        repository, _, kind = name.rpartition("/")
        if not slash or not repository:
            return error(404, "NAME_UNKNOWN")
        match kind:
            case "manifests":
                return self._manifest(asked, repository, last)
            case "blobs":
                return self._blob(asked, last)
            case "tags" if last == "list":
                return self._tags(asked, repository)
            case "referrers" if self.has_referrers:
                return self._referrers(repository, last)
            case _:
                return error(404, "NOT_FOUND")

    def _token(self, asked: Asked) -> Answer:
        if self.secret and asked.headers.get("authorization") != self._basic():
            return error(401, "UNAUTHORIZED")
        self.given += 1
        token = f"token-{self.given}"
        self.tokens[token] = asked.query("scope") or ""
        told = {"token": token, "expires_in": self.token_seconds}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(told).encode())

    def _basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.secret}".encode()).decode()

    def _refusal(self, asked: Asked) -> Answer | None:
        given = asked.headers.get("authorization", "")
        if self.auth == "basic" and given != self._basic():
            return error(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="upstream"'})
        if self.auth != "bearer":
            return None
        repository = asked.path.removeprefix("/v2/").rsplit("/", 2)[0]
        scope = f"repository:{repository}:pull" if repository else ""
        if self.tokens.get(given.removeprefix("Bearer ")) == scope:
            return None
        wanted = f',scope="{scope}"' if scope else ""
        challenge = f'Bearer realm="{self.url}/token",service="upstream"{wanted}'
        return error(401, "UNAUTHORIZED", {"WWW-Authenticate": challenge})

    def _manifest(self, asked: Asked, repository: str, reference: str) -> Answer:
        if (repository, reference) not in self.manifests:
            return error(404, "MANIFEST_UNKNOWN")
        media_type, body = self.manifests[repository, reference]
        etag = f'"{digest_of(body)}"'
        headers = {
            "Content-Type": media_type,
            "Docker-Content-Digest": digest_of(body),
            "ETag": etag,
        }
        if asked.headers.get("if-none-match") == etag:
            return Answer(304, headers)
        return Answer(200, headers, body)

    def _blob(self, asked: Asked, digest: str) -> Answer:
        if digest not in self.blobs:
            return error(404, "BLOB_UNKNOWN")
        data = self.blobs[digest]
        headers = {"Content-Type": "application/octet-stream", "Docker-Content-Digest": digest}
        wanted = asked.headers.get("range")
        if wanted is None or not self.has_ranges:
            return Answer(200, headers, data)
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        if start >= len(data):
            return Answer(416, {"Content-Range": f"bytes */{len(data)}"})
        span = f"bytes {start}-{len(data) - 1}/{len(data)}"
        return Answer(206, {**headers, "Content-Range": span}, data[start:])

    def _tags(self, asked: Asked, repository: str) -> Answer:
        """List tags by pages, as distribution does."""
        held = sorted(tag for name, tag in self.manifests if name == repository and ":" not in tag)
        if not held:
            return error(404, "NAME_UNKNOWN")
        count = min(int(asked.query("n") or len(held)), self.most_tags)
        rest = [tag for tag in held if tag > (asked.query("last") or "")]
        headers = {"Content-Type": "application/json"}
        if len(rest) > count:
            query = urlencode({"n": count, "last": rest[count - 1]})
            headers["Link"] = f'<{asked.path}?{query}>; rel="next"'
        told = {"name": repository, "tags": rest[:count]}
        return Answer(200, headers, json.dumps(told).encode())

    def _referrers(self, repository: str, digest: str) -> Answer:
        found = []
        for (name, reference), (media_type, body) in self.manifests.items():
            document = json.loads(body)
            subject = document.get("subject") or {}
            if name == repository and ":" in reference and subject.get("digest") == digest:
                kind = document.get("artifactType") or document["config"]["mediaType"]
                found.append({**descriptor(media_type, body), "artifactType": kind})
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": found}
        return Answer(200, {"Content-Type": INDEX}, json.dumps(index).encode())


def descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    """Return the descriptor of some bytes."""
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}


def error(status: int, code: str, headers: Mapping[str, str | None] | None = None) -> Answer:
    """Return an error as registries answer it."""
    body = json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode()
    return Answer(status, {"Content-Type": "application/json", **(headers or {})}, body)


@contextmanager
def scripted_upstream(
    upstream: ScriptedUpstream | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> Iterator[ScriptedUpstream]:
    """Serve a registry on a free port; `tls` is the server's `ssl.SSLContext`, if any."""
    served = ScriptedUpstream() if upstream is None else upstream
    loop = asyncio.new_event_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _serve(served, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()
            with suppress(OSError):  # the loop may not end before its socket is closed
                await writer.wait_closed()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(connected, host, 0, ssl=tls, limit=1 << 20)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    scheme = "http" if tls is None else "https"
    served.url = f"{scheme}://{host}:{server.sockets[0].getsockname()[1]}"

    try:
        yield served
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server, served, tasks), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _stop(
    server: asyncio.Server, served: ScriptedUpstream, tasks: set[asyncio.Task[None]]
) -> None:
    """End the server, and its connections, which `tasks` serve."""
    await close_server(server)
    for event in served.held:
        event.set()
    own = asyncio.current_task()
    for _ in range(10):  # a connection that is being accepted becomes a task turns later
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        if others := asyncio.all_tasks() - {own}:
            _, waiting = await asyncio.wait(others, timeout=1)
            for each in waiting:  # a handshake that its client does not go on with
                each.cancel()
    await asyncio.get_running_loop().shutdown_default_executor()
    await turns()


async def _serve(
    served: ScriptedUpstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    late = b""
    while True:
        asked = await _read(reader)
        if asked is None:
            return
        writer.write(late)
        answer = served.answer(asked)
        late = answer.late
        if answer.raw is not None:
            writer.write(answer.raw)
            await writer.drain()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            return
        if not await _send(served, asked, answer, writer):
            return


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (s.partition(":") for s in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers, body)


async def _send(
    served: ScriptedUpstream, asked: Asked, answer: Answer, writer: asyncio.StreamWriter
) -> bool:
    """Send an answer; return False if the connection ends with it."""
    pieces = [answer.body] if isinstance(answer.body, bytes) else list(answer.body)
    length = str(sum(len(piece) for piece in pieces if isinstance(piece, bytes)))
    headers: dict[str, str | None] = {"Content-Length": length, **answer.headers}
    if answer.status in (204, 304):
        headers["Content-Length"] = None
    lines = [f"HTTP/1.1 {answer.status} Scripted"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    if asked.method == "HEAD" or answer.status in (204, 304):
        return True
    for piece in pieces:
        match piece:
            case bytes():
                writer.write(piece)
                await writer.drain()
            case End.RESET:
                writer.transport.abort()
                return False
            case End.CLOSE:
                await _close(writer)
                return False
            case threading.Event():
                await writer.drain()
                served.held.add(piece)
                await asyncio.get_running_loop().run_in_executor(None, piece.wait)
    if headers["Content-Length"] is None and "Transfer-Encoding" not in headers:
        await _close(writer)
        return False
    return True


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
