"""Streamed replies: what must be closed is closed, however the stream ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from cloudcore.serving.asgi import Message
from cloudcore.web.request_state import RequestState
from cloudcore.web.streams import StreamReply


class Bug(Exception):
    pass


async def failing_at_its_end() -> AsyncGenerator[bytes, None]:
    try:
        yield b"part"
    finally:
        raise Bug


async def test_a_reply_is_closed_also_if_its_generator_fails_to_end() -> None:
    """The client leaves amid the stream, and the generator fails as it is closed."""
    closed: list[bool] = []
    scope: Any = {"type": "http", "method": "GET", "state": {}}

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionError

    RequestState(scope, cast("Any", receive), cast("Any", send), "id")
    reply = StreamReply(failing_at_its_end(), close=lambda: closed.append(True))
    with pytest.raises(Bug):
        await reply(scope, cast("Any", receive), cast("Any", send))
    assert closed == [True]
