"""Answers from memory that clients do not read: bounded, and who waits longest is cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.http.protocol import HttpProtocol
from cloudcore.serving.kept_answers import EXTENSION as KEEP
from cloudcore.serving.kept_answers import KeepTerms
from cloudcore.serving.limits import CUT, MIB, ServerLimits, Unsent
from tests.integration.serving_app import (
    Client,
    RunningServer,
    SampleApplication,
    answer,
    serving,
)
from tests.waiting import until

ANSWER = b"x" * (16 * MIB)  # more than the kernel takes for a client that does not read
REQUEST = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"


class LargeApplication(SampleApplication):
    """Answers with many bytes from memory."""

    async def get_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, ANSWER)

    async def get_kept(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": [], KEEP: KeepTerms(0)}
        )
        await send({"type": "http.response.body", "body": ANSWER})


@pytest.fixture
def server() -> Iterator[RunningServer]:
    """Run a server that keeps two of the answers."""
    limits = ServerLimits(sweep_seconds=1e9, unsent_bytes=2 * len(ANSWER))
    with serving(LargeApplication(), limits) as running:
        yield running


class Connection:
    """Notes why it was cut."""

    reason = ""

    def abort(self, reason: str = "") -> None:
        self.reason = reason


def ask_without_reading(server: RunningServer, kept: int) -> Client:
    """Ask for the answer, and wait until `kept` of them are."""
    client = server.connect()
    client.send(REQUEST)
    until(lambda: server.worker.unsent.used == kept * len(ANSWER))
    return client


def test_who_waits_longest_is_cut_and_the_others_get_all(server: RunningServer) -> None:
    with ask_without_reading(server, 1), ask_without_reading(server, 2) as second:
        third = server.connect()
        third.send(REQUEST)
        until(lambda: bool(server.records))
        record = server.records[0]
        assert (record.reason, record.status) == (CUT, 200)
        assert record.sent < len(ANSWER)
        assert server.worker.unsent.used <= 2 * len(ANSWER)
        for client in (second, third):
            assert client.response()[1] == ANSWER
        third.close()
    until(lambda: server.worker.unsent.used == 0)
    ask_without_reading(server, 1).close()  # nothing stays kept for who leaves
    until(lambda: server.worker.unsent.used == 0)


def test_the_bound_cuts_as_many_as_it_takes_and_never_the_last() -> None:
    unsent = Unsent(100)
    small, larger, all_alone = Connection(), Connection(), Connection()
    unsent.keep(small, 40)
    unsent.keep(larger, 60)
    assert small.reason == larger.reason == ""
    unsent.keep(all_alone, 500)
    assert small.reason == larger.reason == CUT
    assert (all_alone.reason, unsent.used) == ("", 500)
    for each in (all_alone, small, larger):
        unsent.release(each)
    assert unsent.used == 0


def test_an_answer_too_large_to_be_kept_is_not_copied(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(REQUEST.replace(b"/large", b"/kept"))
        until(lambda: server.worker.unsent.used == len(ANSWER))
        assert server.cycle.rendered is None


@pytest.mark.parametrize("path", [b"/large", b"/kept"])
def test_a_large_answer_is_written_in_bursts_with_turns_for_others(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, path: bytes
) -> None:
    sizes: list[int] = []
    write = HttpProtocol.write

    def noted(protocol: HttpProtocol, data: bytes) -> None:
        sizes.append(len(data))
        write(protocol, data)

    monkeypatch.setattr(HttpProtocol, "write", noted)
    with server.connect() as client:
        client.send(REQUEST.replace(b"/large", path))
        assert client.response()[1] == ANSWER
    until(lambda: bool(server.records))
    assert server.records[0].sent == len(ANSWER)
    assert sum(sizes) > len(ANSWER)
    assert max(sizes) <= server.worker.limits.burst_bytes
