"""The kernel's state of one request, and the final checks of its response.

All responses pass through here: those of handlers, of the framework and errors.

- Each response gets the request's id.
- The outcome of a request with an ``Idempotency-Key`` is recorded before it is sent.
- A success without an authorization check is a bug and is replaced by a 500.
- A success gets ``no-store``, unless its route or its headers say that it may be stored: it may
  contain a secret, now or in a later version.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from litestar import types
from litestar.types import HTTPScope, Message, Receive, Send

from cloudcore.errors import PlatformError
from cloudcore.web import idempotency
from cloudcore.web.context import RequestContext
from cloudcore.web.envelope import messages
from cloudcore.web.rate_limits import RateLimitStatus, rate_limit_headers
from cloudcore.web.route_spec import RouteSpec

_log = logging.getLogger(__name__)

_STATE: Final = "request_state"


class RequestState:
    """The kernel's state of one request."""

    def __init__(self, scope: HTTPScope, receive: Receive, send: Send, request_id: str) -> None:
        self.request_id = request_id
        self.spec: RouteSpec | None = None
        self.context: RequestContext | None = None
        self.rate_limit: RateLimitStatus | None = None
        self.bearer_came = False
        """True if the request had a bearer token, valid or not."""
        self.hides_absence = False
        """True if a 404 must be replaced by a 403: the caller may not learn what exists."""
        self.tail: str | None = None
        """The decoded tail of the path (see `cloudcore.web.path_tails`), or None."""
        self.is_head = scope["method"] == "HEAD"
        self.receive = receive
        """The server's `receive`; it does not count against the memory budget of bodies."""
        self._send = send
        self._is_replaced = False
        self._start: types.HTTPResponseStartEvent | None = None
        scope["state"][_STATE] = self

    async def send(self, message: Message) -> None:
        """Forward a message of the response; hold the head back until the first body message."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._is_replaced:  # another response was sent completely
            return
        if self._start is not None:
            body = cast("types.HTTPResponseBodyEvent", message)
            start, settled = await self._settle(self._start, body)
            self._is_replaced = settled is not message
            self._start, message = None, settled
            await self._send(start)
        if self.is_head and message["type"] == "http.response.body":
            message["body"] = b""
        await self._send(message)

    async def _settle(
        self, start: types.HTTPResponseStartEvent, body: types.HTTPResponseBodyEvent
    ) -> tuple[types.HTTPResponseStartEvent, types.HTTPResponseBodyEvent]:
        """Return the final head and first body message, before the first byte is sent.

        A success that must not be sent is replaced by an error, and an outcome is recorded.
        """
        if 200 <= start["status"] < 300 and (fault := self._fault()):
            _log.error("%s", fault, extra={"request_id": self.request_id})
            start, body = messages(PlatformError(""), self.request_id)
        context = self.context
        if start["status"] == 403 and context is not None and context.caller is not None:
            context.note_refusal_of(context.caller)
        if context is not None and context.claim is not None and not context.is_committed:
            try:
                await self._keep(context, context.claim, start, body)
            except idempotency.InProgress as taken_over:  # the other attempt's outcome counts
                start, body = messages(taken_over, self.request_id)
                when = (b"retry-after", b"%d" % taken_over.retry_after)
                start["headers"] = [*start["headers"], when]
        spec = self.spec
        if context is not None and spec is not None and not spec.public and start["status"] < 400:
            context.note_answered(spec.family or "")
        headers = [*start["headers"], (b"x-request-id", self.request_id.encode())]
        if self.rate_limit is not None and (start["status"] < 300 or start["status"] == 429):
            headers.extend(rate_limit_headers(self.rate_limit))
        if 200 <= start["status"] < 300 and self._is_private(headers):
            headers.append((b"cache-control", b"no-store"))
        start["headers"] = headers
        return start, body

    def _is_private(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Return True if a success may contain a secret, and has no ``Cache-Control`` yet."""
        return not (
            self.spec is None
            or self.spec.may_be_stored
            or any(name == b"cache-control" for name, _ in headers)
        )

    def _fault(self) -> str | None:
        """Return the reason why a success must not be sent, or None."""
        spec, context = self.spec, self.context
        if spec is None or context is None:
            return None if spec is not None and spec.public else "an answer without a guard"
        if spec.action is not None and not context.authorized:
            return f"{spec.operation} answered without asking whether {spec.action} is allowed"
        if spec.idempotent and not context.is_committed:
            return f"{spec.operation} answered without Context.commit"
        return None

    async def _keep(
        self,
        context: RequestContext,
        claim: idempotency.Claim,
        start: types.HTTPResponseStartEvent,
        body: types.HTTPResponseBodyEvent,
    ) -> None:
        """Store an error with a recorded status as the outcome; for any other, delete the record.

        If the database fails, the response is sent anyway: there was no effect, and the lease
        expires.

        Raise `InProgress` if another attempt has taken over.
        """
        try:
            if start["status"] in idempotency.RECORDED_STATUSES:
                content_type = dict(start["headers"])[b"content-type"].decode("latin-1")
                await context.record(start["status"], body["body"], content_type)
            else:
                await context.database.write_relaxed(idempotency.release, claim)
        except idempotency.InProgress:
            raise
        except PlatformError as error:
            _log.warning("no outcome recorded: %s", error, extra={"request_id": self.request_id})
        except Exception:  # noqa: BLE001 - see above
            _log.exception("no outcome recorded", extra={"request_id": self.request_id})


def request_state_of(scope: Any) -> RequestState:  # noqa: ANN401 - any of the framework's scopes
    """Return the kernel's state of the request to which a scope belongs."""
    found: RequestState = scope["state"][_STATE]
    return found


async def until_nobody_waits(scope: Any) -> None:  # noqa: ANN401 - any of the framework's scopes
    """Return when the client has disconnected or sends no more, or when the server is stopping.

    The request's body must have been read.
    """

    async def leave() -> None:
        while (await request_state_of(scope).receive())["type"] != "http.disconnect":
            pass

    ending: asyncio.Event = scope["state"]["ending"]
    waits = [asyncio.create_task(leave()), asyncio.create_task(ending.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
