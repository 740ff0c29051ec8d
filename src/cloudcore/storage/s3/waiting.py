"""Keep the client of a copy waiting: proxies and clients close a connection on which nothing comes.

After a while the answer begins, as that of AWS does: status 200, the XML declaration, and then a
space now and then, which XML allows there. What the copy came to is in the document that follows,
also an error; so clients of S3 look into it whatever the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from cloudcore.serving.body import Scope, Send
from cloudcore.storage.s3.answers import Answer, send_answer
from cloudcore.storage.s3.markup import DECLARATION

EVERY_SECONDS: Final = 10.0
_COPY_SOURCE: Final = b"x-amz-copy-source"


def is_copy(scope: Scope) -> bool:
    """Return True if a request copies an object, or a part of one."""
    return scope["method"] == "PUT" and any(name == _COPY_SOURCE for name, _ in scope["headers"])


async def send_when_copied(
    scope: Scope,
    send: Send,
    answering: Coroutine[Any, Any, Answer],
    request_id: str,
    every_seconds: float = EVERY_SECONDS,
) -> None:
    """Send an answer; if it takes longer than `every_seconds`, send spaces before it."""
    task = asyncio.ensure_future(answering)
    try:
        await asyncio.wait({task}, timeout=every_seconds)
        if task.done():
            await send_answer(scope, send, task.result(), request_id)
            return
        fields = [(b"content-type", b"application/xml"), (b"x-amz-request-id", request_id.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        part = DECLARATION.encode()
        while not task.done():
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.wait({task}, timeout=every_seconds)
            part = b" "
        body = task.result().body
        assert isinstance(body, bytes), "a document"
        await send({"type": "http.response.body", "body": body.removeprefix(DECLARATION.encode())})
    finally:
        task.cancel()  # the client has left
        await asyncio.gather(task, return_exceptions=True)
