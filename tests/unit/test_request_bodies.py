"""How a body reaches a sink, and how many bytes of bodies are kept at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

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
from cloudcore.serving.bodies.budget import (
    BODIES,
    LARGE_ROOM,
    PATIENCE_SECONDS,
    RETRY_SECONDS,
    SMALL_BYTES,
    SMALL_ROOM,
    TURN_SECONDS,
    BodyBudget,
    NoRoom,
    ReadTurns,
)
from cloudcore.threads import TRANSFERS
from tests.inprocess import Held

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
    made: list[object] = []

    async def counted(call: Callable[..., object], *arguments: object) -> object:
        made.append(call)
        return await TRANSFERS(call, *arguments)

    monkeypatch.setattr(body, "TRANSFERS", counted)
    assert await read_body(messages(*parts), 2 * FREE_JOIN_BYTES) == b"".join(parts)
    assert len(made) == calls


MIB = 1 << 20


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Senders:
    """Clients that send to a process with a small budget."""

    def __init__(self, small: int = SMALL_ROOM, large: int = 10 * MIB) -> None:
        self.clock = Clock()
        self.budget = BodyBudget(small, large, self.clock)
        self.kept: list[asyncio.Future[int]] = []
        self.ends: list[asyncio.Event] = []

    async def send(self, size: int) -> int:
        """Send a whole body, and return its size once it is read."""
        body = Held(b"x" * size)
        body.go_on.set()
        return await self._read(body)

    async def hold_back(self, size: int) -> asyncio.Future[int]:
        """Send a body of this size but for its end, and return what becomes of it."""
        body = Held(b"x" * size, b"end")
        reading = asyncio.ensure_future(self._read(body))
        self.kept.append(reading)
        self.ends.append(body.go_on)
        begun = asyncio.ensure_future(body.begun.wait())
        await asyncio.wait([begun, reading], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        return reading

    async def _read(self, body: Held) -> int:
        parts = body.__aiter__()

        async def receive() -> Message:
            try:
                return {"type": "http.request", "body": await anext(parts), "more_body": True}
            except StopAsyncIteration:
                return {"type": "http.request", "body": b"", "more_body": False}

        size, more = 0, True
        with self.budget.hold() as hold:
            metered = hold.metered(receive)
            while more:
                message = await metered()
                size += len(message["body"])
                more = message["more_body"]
        return size


@asynccontextmanager
async def open_senders(**rooms: int) -> AsyncIterator[Senders]:
    """Open senders to a budget of these rooms, which must be empty when all are gone."""
    senders = Senders(**rooms)
    yield senders
    for each in senders.kept:
        each.cancel()
    await asyncio.gather(*senders.kept, return_exceptions=True)
    assert senders.budget.used == 0
    assert not senders.budget.small.arriving
    assert not senders.budget.large.arriving


@pytest.fixture
async def senders() -> AsyncIterator[Senders]:
    """Return senders to a budget as it is by default."""
    async with open_senders() as senders:
        yield senders


async def test_no_more_is_kept_than_there_is_room_for(senders: Senders) -> None:
    for _ in range(2):
        await senders.hold_back(4 * MIB)
    assert senders.budget.used == 8 * MIB
    refused = await senders.hold_back(4 * MIB)
    with pytest.raises(NoRoom) as raised:
        await refused
    assert raised.value.retry_after == RETRY_SECONDS
    assert senders.budget.used == 8 * MIB
    assert await senders.send(2 * MIB) == 2 * MIB


async def test_what_is_declared_takes_no_room_before_it_arrives(senders: Senders) -> None:
    for _ in range(100):
        await senders.hold_back(1)
    assert senders.budget.used == 100


async def test_small_bodies_have_room_while_large_ones_have_none(senders: Senders) -> None:
    await senders.hold_back(10 * MIB)
    assert await senders.send(SMALL_BYTES) == SMALL_BYTES
    with pytest.raises(NoRoom):
        await senders.send(SMALL_BYTES + 1)


async def test_who_holds_back_gives_way_to_others_once_it_had_its_time(senders: Senders) -> None:
    first = await senders.hold_back(5 * MIB)
    senders.clock.now = 1.0
    second = await senders.hold_back(5 * MIB)
    senders.clock.now = PATIENCE_SECONDS - 0.5
    with pytest.raises(NoRoom):
        await senders.send(4 * MIB)
    senders.clock.now = PATIENCE_SECONDS
    assert await senders.send(4 * MIB) == 4 * MIB
    with pytest.raises(NoRoom):
        await first
    assert not second.done()
    senders.ends[1].set()
    assert await second == 5 * MIB + 3


async def test_small_bodies_give_way_to_small_ones() -> None:
    async with open_senders(small=100_000) as senders:
        first = await senders.hold_back(60_000)
        senders.clock.now = PATIENCE_SECONDS
        assert await senders.send(60_000) == 60_000
        with pytest.raises(NoRoom):
            await first


async def test_a_whole_body_gives_way_to_nobody(senders: Senders) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": bytes(9 * MIB), "more_body": False}

    with senders.budget.hold() as hold:
        await hold.metered(receive)()
        senders.clock.now = 10 * PATIENCE_SECONDS
        with pytest.raises(NoRoom):
            await senders.send(4 * MIB)
    assert await senders.send(4 * MIB) == 4 * MIB


async def test_a_small_body_in_one_message_counts_until_its_request_ends() -> None:
    async def whole(size: int) -> Message:
        return {"type": "http.request", "body": b"x" * size, "more_body": False}

    budget = BodyBudget(small=100)
    with budget.hold() as first:
        await first.metered(lambda: whole(60))()
        assert (budget.small.used, len(budget.small.arriving)) == (60, 0)
        with budget.hold() as second, pytest.raises(NoRoom):
            await second.metered(lambda: whole(41))()
        with budget.hold() as third:
            await third.metered(lambda: whole(40))()
            assert budget.used == 100
    assert budget.used == 0


async def test_a_client_that_leaves_and_a_task_that_is_cancelled_give_back_what_they_had(
    senders: Senders,
) -> None:
    held = await senders.hold_back(9 * MIB)
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    assert senders.budget.used == 0

    async def leave() -> Message:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError), senders.budget.hold() as hold:
        await hold.metered(leave)()


async def test_who_has_to_give_way_does_so_though_the_rest_arrives_at_that_moment(
    senders: Senders,
) -> None:
    rest: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    with senders.budget.hold() as hold:
        reading = asyncio.ensure_future(hold.metered(lambda: rest)())
        await asyncio.sleep(0)
        rest.set_result({"type": "http.request", "body": b"x" * MIB, "more_body": False})
        hold.give_way()
        with pytest.raises(NoRoom):
            await reading
        assert senders.budget.used == 0


async def play_large_bodies_beside_small_ones(senders: Senders) -> None:
    """Read 20 large bodies, one of which is left, and look around between them."""
    read: list[int] = []

    async def read_one(number: int, declared: int) -> None:
        async def receive() -> Message:
            read.append(number)
            return {"type": "http.request", "body": b"x", "more_body": False}

        with senders.budget.hold() as hold:
            await hold.metered(receive, declared)()

    large = [asyncio.ensure_future(read_one(each, 4 * MIB)) for each in range(20)]
    large[3].cancel()
    looks = 0
    while not all(each.done() for each in large):
        before = len(read)
        await read_one(100 + looks, 2000)
        assert read[-1] == 100 + looks  # a small one does not wait
        await asyncio.sleep(0)
        assert len(read) - before - 1 <= 1
        looks += 1
    assert [each for each in read if each < 100] == [*range(3), *range(4, 20)]
    assert looks >= 19


def test_few_large_bodies_are_read_between_two_looks_around() -> None:
    async def scenario() -> None:
        async with open_senders() as senders:
            await play_large_bodies_beside_small_ones(senders)

    for _ in range(2):  # the second in a loop of its own
        asyncio.run(scenario())


async def test_the_loop_has_time_for_others_between_two_turns() -> None:
    async def scenario(senders: int) -> float:
        turns, loop = ReadTurns(), asyncio.get_running_loop()

        async def read() -> None:  # takes its next turn at once
            for _ in range(6 // senders):
                await turns.take()

        began = loop.time()
        await asyncio.gather(*(read() for _ in range(senders)))
        return loop.time() - began

    for senders in (1, 2, 6):
        assert await scenario(senders) >= 5 * TURN_SECONDS - 1e-6


def test_turns_of_a_loop_that_ended_are_nobodys() -> None:
    turns = ReadTurns()

    async def begin() -> None:
        asyncio.ensure_future(turns.take())  # noqa: RUF006 - it ends with the loop
        await asyncio.sleep(0)

    asyncio.run(begin())
    asyncio.run(asyncio.wait_for(turns.take(), 60))


async def test_a_timeout_of_somebody_else_is_not_ours(senders: Senders) -> None:
    async def late() -> Message:
        raise TimeoutError

    with pytest.raises(TimeoutError), senders.budget.hold() as hold:
        await hold.metered(late)()


def test_the_process_has_one_budget() -> None:
    assert (BODIES.small.size, BODIES.large.size) == (SMALL_ROOM, LARGE_ROOM)
    assert SMALL_ROOM + LARGE_ROOM == 64 * MIB
