"""An async test whose time is over is cancelled, and its fixtures are torn down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.time_limits import SECONDS


@pytest.fixture
async def resource(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Leave the test no time; the teardown waits once, as that of a database does."""
    request.node.stash[SECONDS] = 0.0
    yield
    await asyncio.sleep(0)


@pytest.mark.xfail(raises=TimeoutError)
@pytest.mark.usefixtures("resource")
async def test_a_test_without_time_is_cancelled() -> None:
    await asyncio.Event().wait()
