"""Two workers over one database and one folder, for as many examples as a machine runs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from registry.blobstore.disk.store import FilesystemStore
from registry.settings.groups import Limits
from tests.inprocess import ManualClock, Registry, open_registry
from tests.recount import Query, querying

T = TypeVar("T")


@dataclass(frozen=True)
class Surroundings:
    """What all examples of one test share: a loop, two workers over one folder, their rows."""

    loop: asyncio.AbstractEventLoop
    workers: tuple[Registry, Registry]
    store: FilesystemStore
    query: Query
    accounts: Iterator[str]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(coroutine)


@contextmanager
def surroundings(url: str, folder: Path, limits: Limits) -> Iterator[Surroundings]:
    """Open two workers over one database and one folder; they seal blobs."""

    async def opened(stack: AsyncExitStack) -> tuple[Registry, Registry]:
        clock = ManualClock()
        stores = [stores_of.enter_context(closing_store(folder)) for _ in range(2)]
        first, second = [
            await stack.enter_async_context(
                open_registry(url, store, clock=clock, limits=limits, seals=True)
            )
            for store in stores
        ]
        return first, second

    names = (f"account-{number}" for number in itertools.count())
    with ExitStack() as stores_of, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        workers = runner.run(opened(stack))
        try:
            store = stores_of.enter_context(closing_store(folder))
            query = stores_of.enter_context(querying(url))
            yield Surroundings(runner.get_loop(), workers, store, query, names)
        finally:
            runner.run(stack.aclose())


@contextmanager
def closing_store(folder: Path) -> Iterator[FilesystemStore]:
    """Open a store as one worker does."""
    store = FilesystemStore(folder)
    try:
        yield store
    finally:
        store.close()
