"""Fixtures and options every test may use."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.live import LiveRegistry, start_registry

pytest_plugins = [
    "tests.postgresql",
    "tests.databases",
    "tests.time_limits",
    "tests.environment",
    "tests.trusted",
    "tests.kept_logs",
    "tests.aws_kms",
    "tests.late_collection",
]

# A shell without job control has what it starts in the background ignore SIGINT, and children
# inherit that: the servers that tests interrupt, as Ctrl+C does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An assertion in a module that tests share tells as much as one in a test.
pytest.register_assert_rewrite(
    *(
        f"tests.{folder}"
        for folder in ("clients", "conformance", "contract", "fault", "integration", "property")
    ),
    *(f"tests.{module}" for module in ("control_plane", "tenants")),
)

# An example may take its time on a busy machine; so it may where Hypothesis knows of CI.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run async tests and fixtures on asyncio, all of one test on one event loop of its own."""
    return "asyncio", {}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let the garbage collector leave alone what is made here, which stays until the end.

    It would look at it again and again while it is made, and whenever it looks at all later.
    """
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let black-box tests run against any registry."""
    parser.addoption("--registry", help="base URL of the registry to test; default: our own")
    parser.addoption("--namespace", help="prefix of the repositories the tests make")


FOLDERS: Final = (
    "property",
    "fault",
    "fuzz",
    "clients",
    "integration",
    "conformance",
    "contract",
    "unit",
)
"""Those with the longest files first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the files that take longest begin first, so that no process is left with one at the end.

    A file with a long time limit is one; of the others, their folder tells. The rest stays as
    pytest-randomly has shuffled it, which is the same in all processes. One process alone runs them
    in the order of its command.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return

    def place(item: pytest.Item) -> tuple[int, int]:
        folder = item.path.parent.name
        rank = FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)
        return -_longest_limit(item.path), rank

    items.sort(key=place)


_LIMIT: Final = re.compile(r"(?:mark\.timeout|time_limit)\((\d+)")


@cache
def _longest_limit(path: Path) -> int:
    """Return the longest time limit in a file, which may not be imported yet, or 0."""
    return max(map(int, _LIMIT.findall(path.read_text())), default=0)


@pytest.fixture(scope="session")
def live_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRegistry]:
    """Run one ``entrepot dev`` for all tests that only need a registry."""
    registry = start_registry(tmp_path_factory.mktemp("registry") / "data")
    yield registry
    assert registry.stop() == 0, registry.log


@pytest.fixture(scope="session")
def registry_url(request: pytest.FixtureRequest) -> str:
    """Return the base URL of the registry under test (``--registry``, else our own)."""
    url: str | None = request.config.getoption("--registry")
    if url:
        return url.rstrip("/")
    live: LiveRegistry = request.getfixturevalue("live_registry")
    return live.url


@pytest.fixture(scope="session")
def namespace(request: pytest.FixtureRequest) -> str:
    """Return the prefix under which the tests may create repositories."""
    return request.config.getoption("--namespace") or "dev"
