"""An idle database keeps nothing of what its last calls got and gave."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cloudcore.db.base import Connection, Database
from tests.databases import on_both_databases

pytestmark = on_both_databases


class Body:
    """A large argument, or a large result."""


def give_back(_: Connection, given: Body) -> list[Body]:
    return [given]


async def use(run: Callable[..., Awaitable[Any]]) -> weakref.ref[Body]:
    given = Body()
    (result,) = await run(give_back, given)
    assert result is given
    return weakref.ref(given)


@pytest.mark.parametrize("name", ["read", "write", "write_relaxed"])
async def test_an_idle_database_keeps_nothing_of_its_last_call(
    database: Database, name: str
) -> None:
    kept = await use(getattr(database, name))
    gc.collect()
    async with asyncio.timeout(60):
        while kept() is not None:  # noqa: ASYNC110 - the thread's end of a call sets no event
            await asyncio.sleep(0)
