"""Files of things, by keys that are tails of paths: bodies taken and given as streams."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from litestar import Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from cloudcore.errors import InvalidInput, NotFound
from cloudcore.serving.asgi import FileRegion
from cloudcore.serving.bodies.budget import BODIES
from cloudcore.serving.http.request_cycle import RequestCycle
from cloudcore.web.context import RequestContext
from cloudcore.web.streams import RequestStream, StreamReply
from cloudcore.wire import ResponseBody
from tests.things import Weather

MIB: Final = 1 << 20
MOST: Final = 64 * MIB
PART: Final = b"p" * (128 * 1024)


class StoredFile(ResponseBody):
    thing_id: str
    key: str
    size: int
    content_type: str | None
    declared: int | None


class Bug(Exception):
    """A generator of an answer failed."""


@dataclass
class Shelf:
    """The files, and what a test wants to know of how they were moved."""

    folder: Path
    files: dict[tuple[str, str], Path] = field(default_factory=dict)
    units: list[int] = field(default_factory=list)
    """Bytes that were given at once."""
    kept: list[int] = field(default_factory=list)
    """Bytes that the process held of a body, or of an answer, beside those given."""
    incomplete: threading.Event = field(default_factory=threading.Event)
    waits: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    """What gives the bytes of an answer was closed."""
    _names: Any = field(default_factory=count)

    def new(self) -> Path:
        return self.folder / str(next(self._names))

    def find(self, thing_id: str, key: str) -> Path:
        path = self.files.get((thing_id, key))
        if path is None:
            raise NotFound("there is no such file")
        return path


def file_routes(shelf: Shelf) -> list[HTTPRouteHandler]:  # noqa: C901 - one function a route
    """Return routes that put files on `shelf`."""

    @put(
        "/v1/things/{thing_id:str}/files/{key:str}",
        status_code=201,
        opt={
            "action": "test:UpdateThing",
            "tail": "key",
            "takes_stream": True,
            "max_stream_bytes": MOST,
        },
    )
    async def put_file(
        thing_id: FromPath[str],
        key: FromPath[str],
        stream: NamedDependency[RequestStream],
        ctx: NamedDependency[RequestContext],
    ) -> StoredFile:
        """Store a file, moved in units off the event loop."""
        ctx.authorize(crn(ctx, thing_id))
        path = shelf.new()
        with path.open("wb") as file:

            def sink(part: memoryview) -> None:
                shelf.units.append(len(part))
                shelf.kept.append(BODIES.used)
                file.write(part)

            def finish(is_whole: bool) -> bool:
                file.flush()
                return is_whole

            if not await stream.receive_into(sink, finish):
                shelf.incomplete.set()
                raise InvalidInput("the body did not arrive whole")
        shelf.files[thing_id, key] = path
        return StoredFile(thing_id, key, path.stat().st_size, stream.content_type, stream.length)

    @get(
        "/v1/things/{thing_id:str}/files/{key:str}",
        opt={"action": "test:GetThing", "tail": "key"},
    )
    async def get_file(
        thing_id: FromPath[str], key: FromPath[str], ctx: NamedDependency[RequestContext]
    ) -> StreamReply:
        """Return a file, sent in place."""
        ctx.authorize(crn(ctx, thing_id))
        path = shelf.find(thing_id, key)
        descriptor = os.open(path, os.O_RDONLY)

        def close() -> None:
            os.close(descriptor)
            shelf.ended.set()

        return StreamReply(
            FileRegion(descriptor, 0, path.stat().st_size),
            headers=[(b"content-type", b"application/octet-stream"), (b"x-kept", b"1")],
            close=close,
        )

    @delete(
        "/v1/things/{thing_id:str}/files/{key:str}",
        opt={"action": "test:DeleteThing", "tail": "key"},
    )
    async def delete_file(
        thing_id: FromPath[str], key: FromPath[str], ctx: NamedDependency[RequestContext]
    ) -> None:
        """Delete a file."""
        ctx.authorize(crn(ctx, thing_id))
        shelf.find(thing_id, key).unlink()
        del shelf.files[thing_id, key]

    @post(
        "/v1/things/{thing_id:str}/counts/{key:str}",
        status_code=200,
        opt={"action": "test:UpdateThing", "tail": "key", "takes_stream": True},
    )
    async def count_file(
        thing_id: FromPath[str],
        key: FromPath[str],
        stream: NamedDependency[RequestStream],
        ctx: NamedDependency[RequestContext],
        request: Request[Any, Any, Any],
    ) -> StoredFile:
        """Count the bytes of a file, part by part, and keep none."""
        ctx.authorize(crn(ctx, thing_id))
        size = 0
        try:
            async for part in stream:
                size += len(part)
                shelf.units.append(len(part))
                body = cycle_of(request).body
                assert body is not None
                shelf.kept.append(body.received - size + BODIES.used)
        except InvalidInput:
            shelf.incomplete.set()
            raise
        return StoredFile(thing_id, key, size, stream.content_type, stream.length)

    @get(
        "/v1/things/{thing_id:str}/parts/{key:str}",
        opt={"action": "test:GetThing", "tail": "key", "media_types": ("text/plain",)},
    )
    async def get_parts(
        thing_id: FromPath[str],
        key: FromPath[str],
        ctx: NamedDependency[RequestContext],
        request: Request[Any, Any, Any],
    ) -> StreamReply:
        """Return as many parts as the key says, then do what else it says."""
        ctx.authorize(crn(ctx, thing_id))
        number, _, then = key.partition("/")

        async def parts() -> AsyncGenerator[bytes, None]:
            try:
                for _ in range(int(number)):
                    transport = cycle_of(request).connection.transport
                    shelf.kept.append(transport.get_write_buffer_size())
                    yield PART
                if then == "wait":
                    shelf.waits.set()
                    await asyncio.Event().wait()
                elif then == "fail":
                    raise Bug
                elif then == "absent":
                    raise NotFound("there is no such file")
            finally:
                shelf.ended.set()

        length = int(number) * len(PART) if then == "sized" else None
        return StreamReply(parts(), status=203, headers=[(b"etag", b'"a"')], length=length)

    @put(
        "/v1/unasked-streams/{key:str}",
        status_code=200,
        opt={"action": "test:UpdateThing", "tail": "key", "takes_stream": True},
    )
    async def unasked_stream(key: FromPath[str], stream: NamedDependency[RequestStream]) -> Weather:
        """Forget to ask for permission before reading."""
        async for part in stream:
            shelf.units.append(len(part))
        return Weather(is_fine=True)

    @get("/v1/unasked-streams/{key:str}", opt={"action": "test:GetThing", "tail": "key"})
    async def unasked_reply(key: FromPath[str]) -> StreamReply:
        """Forget to ask for permission before answering."""
        return StreamReply(FileRegion(os.open(os.devnull, os.O_RDONLY), 0, 0))

    return [
        put_file, get_file, delete_file, count_file, get_parts, unasked_stream, unasked_reply,
    ]  # fmt: skip


def crn(ctx: RequestContext, thing_id: str) -> str:
    assert ctx.caller is not None
    return f"crn:test:local:{ctx.caller.account_id}:thing/{thing_id}"


def cycle_of(request: Request[Any, Any, Any]) -> RequestCycle:
    """Return the server's side of a request."""
    extensions: dict[str, Any] = request.scope["extensions"]  # type: ignore[assignment]
    cycle: RequestCycle = extensions["entrepot.held_body"]
    return cycle
