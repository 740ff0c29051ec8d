"""A worker of a real registry killed while it delivers: another goes on before its lease ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fault.workers import kill, owner_of, workers_of
from tests.live_signed_in import SignedIn, serving
from tests.waiting import until_so
from tests.webhook_receiver import OK, Answer, Received, Receiver, webhook_receiver

PATIENCE_SECONDS: Final = 40
"""Less than a lease lasts, which is 60 s."""

pytestmark = pytest.mark.timeout(180)


async def subscribed(ask: Callable[..., Any], hook: Receiver) -> str:
    """Make a topic to which the webhook is subscribed, and return its path."""
    topic = await asyncio.to_thread(ask, "POST", "/v1/topics", {"name": "t"})
    path = f"/v1/topics/{topic['topic']['id']}"
    body = {"protocol": "http", "endpoint": f"{hook.url}/hook"}
    await asyncio.to_thread(ask, "POST", f"{path}/subscriptions", body)
    await until_so(lambda: hook.of("subscription_confirmation"))
    token = hook.of("subscription_confirmation")[-1].envelope["token"]
    await asyncio.to_thread(ask, "POST", "/v1/subscription-confirmations", {"token": token})
    return path


async def kill_and_see_delivered(signed_in: SignedIn, hook: Receiver) -> None:
    """Publish to a webhook that hangs, and kill the worker that waits for it."""
    ask = partial(signed_in.call, signed_in.acme)
    path = await subscribed(ask, hook)
    hang = asyncio.Event()

    def hangs(got: Received) -> Answer:
        return hang if len(hook.of("notification")) == 1 else OK

    hook.answer = hangs
    await asyncio.to_thread(ask, "POST", f"{path}/messages", {"message": "hello"})
    await until_so(lambda: hook.of("notification"))
    port, hook_port = hook.writers[-1].get_extra_info("peername")[1], int(hook.url.split(":")[-1])
    kill([owner_of(hook_port, port, workers_of(signed_in.registry.process.pid))])
    await until_so(lambda: len(hook.of("notification")) == 2, seconds=PATIENCE_SECONDS)
    first, second = hook.of("notification")
    assert first.envelope["message"] == second.envelope["message"] == "hello"


async def test_on_sqlite(tmp_path: Path) -> None:
    await check(tmp_path, None)


@pytest.mark.postgresql
async def test_on_postgresql(tmp_path: Path, postgresql_database: str) -> None:
    await check(tmp_path, postgresql_database)


async def check(tmp_path: Path, database: str | None) -> None:
    """Serve an install that may call the webhook."""
    async with webhook_receiver() as hook:
        install = serving(
            tmp_path / "data",
            *("--workers", "2"),
            settings=lambda _: {"ENTREPOT_WEBHOOK_ALLOWED": hook.url},
            database=database,
        )
        signed_in = await asyncio.to_thread(install.__enter__)
        try:
            await kill_and_see_delivered(signed_in, hook)
        finally:
            await asyncio.to_thread(install.__exit__, None, None, None)
