"""Look-ups of names that hang hold up no others."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from cloudcore.outbound import host_lookup
from cloudcore.outbound.host_lookup import resolve


async def test_names_whose_servers_do_not_answer_hold_up_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, asked = threading.Event(), []

    def look_up(host: str, port: int, **_options: Any) -> Any:  # noqa: ANN401
        asked.append(host)
        if host.startswith("hangs"):
            answers.wait()
        if host.startswith("none"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(0, 0, 0, "", ("192.0.2.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(host_lookup, "MOST_AT_ONCE", 60)
    hanging = [asyncio.create_task(resolve(f"hangs{number}", 80)) for number in range(50)]
    same = asyncio.create_task(resolve("hangs0", 80))
    assert [str(each) for each in await resolve("answers", 80)] == ["192.0.2.1"]
    with pytest.raises(socket.gaierror):
        await resolve("none", 80)
    hanging[1].cancel()  # who asked has gone; the look-up goes on, and disturbs nobody
    more = [asyncio.create_task(resolve(f"hangs{n}", 80)) for n in range(50, 60)]
    await asyncio.sleep(0)
    with pytest.raises(BlockingIOError):
        await resolve("answers", 80)
    answers.set()
    found = await asyncio.gather(*hanging, same, *more, return_exceptions=True)
    assert [each for each in found if isinstance(each, BaseException)] == [found[1]]
    assert asked.count("hangs0") == 1


async def test_a_name_is_looked_up_again_after_the_machine_had_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        with pytest.raises(BlockingIOError):
            await resolve("127.0.0.1", 80)
    assert [str(each) for each in await resolve("127.0.0.1", 80)] == ["127.0.0.1"]
