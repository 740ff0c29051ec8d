"""A repository in an install of its own: for a test, or for questions that change nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.integration.pushing import World, make_world
from tests.tenants import open_install


@asynccontextmanager
async def open_world(url: str, **fields: Any) -> AsyncIterator[World]:  # noqa: ANN401 - JSON
    """Open an install with one repository of these fields."""
    async with open_install(url) as install:
        yield await make_world(install, **fields)


NOBODY: Final = "01890000-0000-7000-8000-000000000000"
ABSENT: Final = f"sha256:{'0' * 64}"


class Reader:
    """A world of one image, ``v1``, that lives on: what is asked of it changes nothing."""

    def __init__(self, runner: asyncio.Runner, world: World) -> None:
        self._runner = runner
        self._world = world

    def ask(
        self, method: str, path: str, body: str = "", content_type: str = "application/json"
    ) -> httpx.Response:
        """Send a request to the repository."""
        headers = {"content-type": content_type} if body else {}
        request = self._world.control.request(
            method, f"{self._world.path}{path}", content=body, headers=headers
        )
        return self._runner.run(_awaited(request))


async def _awaited(answer: Awaitable[httpx.Response]) -> httpx.Response:
    return await answer


@pytest.fixture(scope="module")
def reader(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Make a world for requests that are refused."""
    path = tmp_path_factory.mktemp("images") / "metadata.db"
    shutil.copy(migrated_file, path)
    with asyncio.Runner() as runner, ExitStack() as ended:
        install = open_install(f"sqlite:///{path}")
        opened = runner.run(install.__aenter__())
        ended.callback(lambda: runner.run(install.__aexit__(None, None, None)))
        world = runner.run(make_world(opened))
        runner.run(world.push_image("one", "v1"))
        yield Reader(runner, world)
