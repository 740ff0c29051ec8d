"""How a body reaches a sink, from our own server and from a stock one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from cloudcore.serving import asgi as body
from cloudcore.serving.asgi import (
    FREE_JOIN_BYTES,
    UNIT_BYTES,
    BodyTooLarge,
    Message,
    Receive,
    Sink,
    T,
    read_body,
    receive_into,
)

GONE: Message = {"type": "http.disconnect"}


def messages(*bodies: bytes, cut: bool = False) -> Receive:
    """Return a server that sends `bodies` and ends there, or loses the client."""
    queue: list[Message] = [{"type": "http.request", "body": b, "more_body": True} for b in bodies]
    if cut:
        queue.append(GONE)
    elif queue:
        queue[-1]["more_body"] = False
    else:
        queue.append({"type": "http.request"})

    async def receive() -> Message:
        return queue.pop(0)

    return receive


class Taken:
    """A sink that keeps copies of its views, and what finish was told."""

    def __init__(self) -> None:
        self.views: list[bytes] = []
        self.told: list[bool] = []

    def sink(self, view: memoryview) -> None:
        self.views.append(bytes(view))

    def finish(self, is_complete: bool) -> str:
        self.told.append(is_complete)
        return "result"


@pytest.mark.parametrize(
    ("bodies", "views"),
    [
        ([], []),
        ([b""], []),
        ([b"one"], [b"one"]),
        ([b"o", b"n", b"e"], [b"one"]),
        ([b"x" * UNIT_BYTES, b"y"], [b"x" * UNIT_BYTES, b"y"]),
        ([b"x", b"y" * UNIT_BYTES, b""], [b"x" + b"y" * UNIT_BYTES]),
    ],
    ids=range(6),
)
async def test_messages_reach_the_sink_in_units(bodies: list[bytes], views: list[bytes]) -> None:
    taken = Taken()
    result = await receive_into({}, messages(*bodies), taken.sink, taken.finish)
    assert result == "result"
    assert taken.views == views
    assert taken.told == [True]


async def test_what_came_before_the_client_left_counts() -> None:
    taken = Taken()
    await receive_into({}, messages(b"a", b"b", cut=True), taken.sink, taken.finish)
    assert b"".join(taken.views) == b"ab"
    assert taken.told == [False]


async def test_a_server_that_holds_the_body_moves_it_itself() -> None:
    class Holder:
        """A server with the extension."""

        async def receive_into(self, sink: Sink, finish: Callable[[bool], T]) -> T:
            sink(memoryview(b"held"))
            return finish(True)

    async def never() -> Message:
        raise AssertionError

    taken = Taken()
    scope = {"extensions": {"entrepot.held_body": Holder()}}
    assert await receive_into(scope, never, taken.sink, taken.finish) == "result"
    assert taken.views == [b"held"]


@pytest.mark.parametrize(
    ("bodies", "body"), [([], b""), ([b"one"], b"one"), ([b"o", b"", b"ne"], b"one")]
)
async def test_a_small_body_is_read_whole(bodies: list[bytes], body: bytes) -> None:
    assert await read_body(messages(*bodies), 3) == body


async def test_a_body_cut_short_is_none() -> None:
    assert await read_body(messages(b"one", cut=True), 3) is None


async def test_a_body_over_the_limit_is_not_read_on() -> None:
    receive = messages(b"one", b"two", b"three")
    with pytest.raises(BodyTooLarge):
        await read_body(receive, 5)
    assert (await receive())["body"] == b"three"


class CountingPool(ThreadPoolExecutor):
    """Counts what is done in its threads."""

    calls = 0

    def submit(self, call: Callable[..., Any], /, *args: object, **kwargs: object) -> Future[Any]:
        self.calls += 1
        return super().submit(call, *args, **kwargs)


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ([b"a" * FREE_JOIN_BYTES], 0),  # nothing to copy
        ([b"a" * (FREE_JOIN_BYTES - 2), b"b"], 0),
        ([b"a" * (FREE_JOIN_BYTES - 1), b"b"], 1),
        ([bytes(1 << 16)] * (FREE_JOIN_BYTES >> 16), 1),
    ],
)
async def test_megabytes_are_copied_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, parts: list[bytes], calls: int
) -> None:
    pool = CountingPool(1)
    monkeypatch.setattr(body, "TRANSFERS", pool)
    assert await read_body(messages(*parts), 2 * FREE_JOIN_BYTES) == b"".join(parts)
    assert pool.calls == calls
