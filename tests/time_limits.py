"""Time limits of async tests, which end in their event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final

import pytest

SECONDS: Final = pytest.StashKey[float]()
"""How long a test may take with its fixtures, by its mark or the settings of pytest-timeout."""


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:  # noqa: ANN401 - untyped
    """Note how long the test may take."""
    item.stash[SECONDS] = settings.timeout


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Cancel an async test after three quarters of its time; the rest is for its fixtures.

    The timer of pytest-timeout interrupts the event loop and leaves the test waiting in it. The
    teardown of async fixtures, which anyio runs in the same task, would then never begin.
    """
    test, seconds = pyfuncitem.obj, pyfuncitem.stash.get(SECONDS, None)
    if iscoroutinefunction(test) and seconds is not None:

        @wraps(test)
        async def limited(**arguments: object) -> None:
            async with asyncio.timeout(seconds * 3 / 4):
                await test(**arguments)

        pyfuncitem.obj = limited
    return (yield)
