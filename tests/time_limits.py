"""Time limits of tests: async ones end in their event loop, and all are longer in CI."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final

import pytest

SECONDS: Final = pytest.StashKey[float]()
"""How long a test may take with its fixtures, by its mark or the settings of pytest-timeout."""

SLOWER: Final = 2 if os.environ.get("CI") else 1
"""How many times the usual limits are given. A limit ends what hangs: it measures no machine."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test `SLOWER` times the limit of its mark, or of the settings."""
    usual = float(config.getoption("timeout") or config.getini("timeout"))
    for item in items if SLOWER > 1 else ():
        mark = item.get_closest_marker("timeout")
        limit = usual if mark is None else mark.args[0]
        item.add_marker(pytest.mark.timeout(SLOWER * limit), append=False)


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
