"""``/v1`` as the console uses it: in this process, with the bearer of who has signed in.

So each permission, rule and error is the control plane's own; the console decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from cloudcore.identity.oauth_forms import values_of
from registry.console.messages import Request

Application = Callable[[Any, Any, Any], Awaitable[None]]

_PASSED_ON: Final = (b"x-forwarded-for", b"user-agent")


class Refused(Exception):
    """The control plane said no."""

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
        """What it is about."""

    @property
    def sentence(self) -> str:
        """Return the message as a page says it."""
        return f"{self.message[:1].upper()}{self.message[1:]}."


class ControlPlaneClient:
    """Calls the control plane for one request of a browser."""

    def __init__(self, app: Application, request: Request, bearer: str | None = None) -> None:
        self._app = app
        self._request = request
        self._bearer = bearer

    def signed(self, bearer: str) -> ControlPlaneClient:
        """Return a client that shows another token."""
        return ControlPlaneClient(self._app, self._request, bearer)

    async def get(self, path: str, **query: str | int | None) -> Any:  # noqa: ANN401 - JSON
        """Return what is at a path; parameters that are None or empty are left out."""
        return msgspec.json.decode(await self.read(path, **query))

    async def read(self, path: str, **query: str | int | None) -> bytes:
        """Return the bytes at a path."""
        return await self._send("GET", path, query)

    async def post(self, path: str, body: object = None, **query: str | int | None) -> Any:  # noqa: ANN401
        """Post a JSON body, or none."""
        return await self._change("POST", path, body, query)

    async def change(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        if_match: str = "",
        **query: str | int | None,
    ) -> Any:  # noqa: ANN401 - JSON
        """Make a change, and return what it says of itself; None when it says nothing.

        With `if_match`, only of what has this entity tag still.
        """
        return await self._change(method, path, body, query, if_match)

    async def _change(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, str | int | None],
        if_match: str = "",
    ) -> Any:  # noqa: ANN401 - JSON
        content = b"" if body is None else msgspec.json.encode(body)
        answer = await self._send(method, path, query, content, b"application/json", if_match)
        return msgspec.json.decode(answer) if answer else None

    async def post_form(self, path: str, fields: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        """Post a form to an endpoint of OAuth."""
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
        if_match: str = "",
    ) -> bytes:
        outer = self._request.scope
        headers = [(b"host", self._request.host.encode("latin-1"))]
        for name in _PASSED_ON:
            headers += [(name, value) for value in values_of(outer["headers"], name)]
        if self._bearer is not None:
            headers.append((b"authorization", b"Bearer " + self._bearer.encode()))
        if body:
            headers.append((b"content-type", content_type))
        if if_match:
            headers.append((b"if-match", f'"{if_match}"'.encode()))
        headers.append((b"content-length", b"%d" % len(body)))
        given = {name: value for name, value in query.items() if value not in (None, "")}
        scope = {
            "type": "http",
            "asgi": outer["asgi"],
            "http_version": "1.1",
            "method": method,
            "scheme": outer["scheme"],
            "path": path,
            "raw_path": quote(path, safe="/:@").encode(),
            "query_string": urlencode(given).encode(),
            "root_path": "",
            "headers": headers,
            "client": outer.get("client"),
            "server": outer.get("server"),
            "state": {"request_id": self._request.request_id},
        }
        status, answer = await _exchange(self._app, scope, body)
        if "principal" in scope["state"]:  # the log names who acted last
            outer["state"]["principal"] = scope["state"]["principal"]
        if status >= 300:
            raise _refused(status, answer, self._request.request_id)
        return answer


async def _exchange(app: Application, scope: Any, body: bytes) -> tuple[int, bytes]:  # noqa: ANN401
    """Return status and body of the answer to a request."""
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
    """Return what an error says, in the envelope or in the shape of OAuth."""
    found = msgspec.json.decode(answer)
    error = found["error"]
    if isinstance(error, str):
        return Refused(status, error, found.get("error_description", ""), request_id)
    return Refused(
        status, error["code"], error["message"], error["request_id"], error.get("params")
    )
