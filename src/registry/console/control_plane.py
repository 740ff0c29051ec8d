"""Call ``/v1`` in this process, with the access token of the person or of the assumed role."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from cloudcore.serving.asgi import Receive, Send, header_values
from cloudcore.serving.dispatch import Application
from registry.console.browser_request import Scope, host_of

T = TypeVar("T")

_NAME: Final = re.compile(r"[a-z]+(?:_[a-z]+)+(?=: )")
_PATH_OF_BOUND: Final = re.compile(r"[^\s:]+(?=: at (?:least|most) \d)")
_PASSED_ON: Final = (b"x-forwarded-for", b"user-agent")


class Refused(Exception):
    """An error that ``/v1`` returned."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        request_id: str,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id
        self.params = params or {}
        """Details of the error, such as the field of a form."""

    @property
    def sentence(self) -> str:
        """Return the message as a sentence."""
        words = _in_form_words(self.message)
        return f"{words[:1].upper()}{words[1:]}."


class ControlPlaneClient:
    """A client of the control plane, for one request of a browser.

    Every call but `relay` raises `Refused` if the response is an error.
    """

    def __init__(
        self,
        app: Application,
        scope: Scope,
        bearer: str | None = None,
        *,
        forces_changes: bool = False,
    ) -> None:
        """Pass on the client address, host and request id of the browser's request (`scope`)."""
        self._app = app
        self._scope = scope
        self._bearer = bearer
        self._forces_changes = forces_changes

    def signed(self, bearer: str, *, forces_changes: bool = False) -> ControlPlaneClient:
        """Return a client with this access token; `forces_changes` sends ``force`` with changes."""
        return ControlPlaneClient(self._app, self._scope, bearer, forces_changes=forces_changes)

    async def get(self, path: str, **query: str | int | None) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON at a path; query parameters that are None or empty are left out."""
        return msgspec.json.decode(await self.read(path, **query))

    async def each(
        self, path: str, many: str, **query: str | int | None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield each item of a list, reading it page by page; `many` is the field of the items."""
        marker = None
        while True:
            found = await self.get(path, **query, marker=marker, limit=200)
            for one in found[many]:
                yield one
            marker = found["meta"].get("marker")
            if marker is None:
                return

    async def read(self, path: str, **query: str | int | None) -> bytes:
        """Return the bytes of the response at a path."""
        return await self._send("GET", path, query)

    async def post(
        self, path: str, body: object = None, *, once: str = "", **query: str | int | None
    ) -> Any:  # noqa: ANN401 - JSON
        """Post a JSON body, or none; return the JSON of the response, as `change` does."""
        # `if_match` is passed, so that a type checker does not expect it in `query`.
        return await self.change("POST", path, body, once=once, if_match="", **query)

    async def change(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        once: str = "",
        if_match: str = "",
        **query: str | int | None,
    ) -> Any:  # noqa: ANN401 - JSON
        """Send a change; return the JSON of the response, or None if the response is empty.

        `once` is the ``Idempotency-Key``: a repeated change with the same key gets the same
        response. With `if_match`, the change is made only if the resource still has this entity
        tag.
        """
        if self._forces_changes:
            query = {**query, "force": "true"}
        content = b"" if body is None else msgspec.json.encode(body)
        match = f'"{if_match}"' if if_match else ""
        headers = [(b"idempotency-key", once), (b"if-match", match)]
        answer = await self._send(method, path, query, content, b"application/json", headers)
        return msgspec.json.decode(answer) if answer else None

    async def post_form(self, path: str, fields: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        """Post a form to an OAuth endpoint, and return the JSON of the response."""
        content_type = b"application/x-www-form-urlencoded"
        answer = await self._send("POST", path, {}, urlencode(fields).encode(), content_type)
        return msgspec.json.decode(answer) if answer else None

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        body: bytes = b"",
        content_type: bytes = b"",
        more_headers: Sequence[tuple[bytes, str]] = (),
    ) -> bytes:
        headers = [(b"content-type", content_type)] if body else []
        headers += [(name, value.encode()) for name, value in more_headers if value]
        headers.append((b"content-length", b"%d" % len(body)))
        given = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in query.items()
            if value not in (None, "")
        }
        scope = self._scope_of(method, path, urlencode(given), headers)
        status, answer = await _exchange(self._app, scope, body)
        self._note(scope)
        if status >= 300:
            raise _refused(status, answer, scope["state"]["request_id"])
        return answer

    async def relay(
        self,
        method: str,
        path: str,
        receive: Receive,
        send: Send,
        fields: Sequence[bytes],
        answered: Callable[[list[tuple[bytes, bytes]]], None],
    ) -> None:
        """Stream the browser's body to a path, and the response back to the browser.

        Request headers named in `fields` are passed on. `answered` may change the response headers.

        Raise `Refused` if a request without a body gets an error.
        """
        outer = self._scope
        headers = [(name, value) for name in fields for value in header_values(outer, name)]
        scope = self._scope_of(method, path, "", headers)
        scope["extensions"] = outer.get("extensions", {})
        refusal: tuple[int, bytearray] | None = None

        async def pass_on(message: Any) -> None:  # noqa: ANN401 - a message
            nonlocal refusal
            if message["type"] == "http.response.start":
                self._note(scope)  # now: the request is logged when the response ends
                if method != "PUT" and message["status"] >= 400:
                    refusal = message["status"], bytearray()
                    return
                message["headers"] = list(message["headers"])
                answered(message["headers"])
            elif refusal is not None:
                refusal[1].extend(message.get("body", b""))
                return
            await send(message)

        await self._app(scope, receive, pass_on)
        if refusal is not None:
            raise _refused(refusal[0], bytes(refusal[1]), scope["state"]["request_id"])

    def _scope_of(
        self, method: str, path: str, query: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Scope:
        outer = self._scope
        known = [(b"host", host_of(outer).encode("latin-1"))]
        known += [(name, value) for name in _PASSED_ON for value in header_values(outer, name)]
        if self._bearer is not None:
            known.append((b"authorization", b"Bearer " + self._bearer.encode()))
        return {
            "type": "http",
            "asgi": outer["asgi"],
            "http_version": "1.1",
            "method": method,
            "scheme": outer["scheme"],
            "path": path,
            "raw_path": quote(path, safe="/:@").encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [*known, *headers],
            "client": outer.get("client"),
            "server": outer.get("server"),
            "state": {"request_id": outer["state"]["request_id"]},
        }

    def _note(self, scope: Scope) -> None:
        """Copy the principal and event of a call to the browser's request, for the log."""
        outer = self._scope
        if "principal" in scope["state"]:
            outer["state"]["principal"] = scope["state"]["principal"]
            outer["state"]["source"] = scope["state"].get("source")
        if "event" in scope["state"]:
            outer["state"]["event"] = scope["state"]["event"]


async def unless_refused(reading: Awaitable[T]) -> T | None:
    """Return the result of `reading`, or None if ``/v1`` returns 403 or 404."""
    try:
        return await reading
    except Refused as error:
        if error.status in (403, 404):
            return None
        raise


async def _exchange(app: Application, scope: Any, body: bytes) -> tuple[int, bytes]:  # noqa: ANN401
    requests = [{"type": "http.request", "body": body, "more_body": False}]
    answer = bytearray()
    status = 500

    async def receive() -> Any:  # noqa: ANN401 - a message
        return requests.pop() if requests else {"type": "http.disconnect"}

    async def send(message: Any) -> None:  # noqa: ANN401 - a message
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            answer.extend(message.get("body", b""))

    await app(scope, receive, send)
    return status, bytes(answer)


def _refused(status: int, answer: bytes, request_id: str) -> Refused:
    """Return the error in a response, whose body is of ``/v1`` or of OAuth (RFC 6749 §5.2)."""
    found = msgspec.json.decode(answer)
    error = found["error"]
    if isinstance(error, str):
        return Refused(status, error, found.get("error_description", ""), request_id)
    return refused_of(status, error)


def refused_of(status: int, error: Mapping[str, Any]) -> Refused:
    """Return the error in a ``/v1`` error body."""
    return Refused(
        status, error["code"], error["message"], error["request_id"], error.get("params")
    )


def _in_form_words(message: str) -> str:
    """Replace the field name at the beginning of a message with the label in the form.

    If the message is about a bound, the path to the field is dropped: the form shows which field is
    meant.
    """
    if found := _PATH_OF_BOUND.match(message):
        name = found[0].rpartition(".")[2].partition("[")[0]
    elif found := _NAME.match(message):
        name = found[0]
    else:
        return message
    return f"{name.replace('_', ' ')}{message[found.end() :]}"
