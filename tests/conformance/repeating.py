"""Ask for what is read again and again: answers from memory must be the same byte for byte."""

from __future__ import annotations

from typing import Final

import httpx

_READS: Final = ("GET", "HEAD")
_DIFFER: Final = (b"date", b"x-request-id")


class RepeatingTransport(httpx.HTTPTransport):
    """Sends each read three times, and compares the answers byte for byte.

    Not the state of uploads, which tests read while they change it, nor bearers: each is new.
    """

    def __init__(self, beside: str | None = None) -> None:
        """Ask another server of the same registry too, at `beside`, and compare its answers."""
        super().__init__()
        self._beside = beside

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the last answer."""
        first = super().handle_request(request)
        path = request.url.path
        if request.method not in _READS or "/blobs/uploads/" in path or path == "/v2/token":
            return first
        for _ in range(2):
            again = super().handle_request(request)
            assert _plain(again) == _plain(first)
        if self._beside is not None:
            assert _plain(super().handle_request(_moved(request, self._beside))) == _plain(again)
        return again


def _moved(request: httpx.Request, beside: str) -> httpx.Request:
    """Return a request with the same head, for another server."""
    url = request.url.copy_with(netloc=httpx.URL(beside).netloc)
    return httpx.Request(
        request.method, url, headers=request.headers, extensions=request.extensions
    )


def _plain(response: httpx.Response) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return an answer without what differs each time."""
    body = response.read()
    headers = [each for each in response.headers.raw if each[0].lower() not in _DIFFER]
    response.stream = httpx.ByteStream(body)
    boundary = response.headers.get("content-type", "").partition("boundary=")[2].encode()
    if boundary:
        headers = [(name, value.replace(boundary, b"")) for name, value in headers]
        body = body.replace(boundary, b"")
    return response.status_code, headers, body
