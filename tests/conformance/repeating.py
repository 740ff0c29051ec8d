"""Ask for what is read twice more: those answers may come from memory, and must be the same."""

from __future__ import annotations

from typing import Final

import httpx

_READS: Final = ("GET", "HEAD")
_DIFFER: Final = (b"date", b"x-request-id")


class RepeatingTransport(httpx.HTTPTransport):
    """Sends each read three times, and compares the answers byte for byte.

    Not the state of uploads, which tests read while they change it.
    """

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the last answer."""
        first = super().handle_request(request)
        if request.method not in _READS or "/blobs/uploads/" in request.url.path:
            return first
        for _ in range(2):
            again = super().handle_request(request)
            assert _plain(again) == _plain(first)
        return again


def _plain(response: httpx.Response) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return an answer without what differs each time."""
    body = response.read()
    headers = [each for each in response.headers.raw if each[0].lower() not in _DIFFER]
    response.stream = httpx.ByteStream(body)
    return response.status_code, headers, body
