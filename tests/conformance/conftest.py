"""The conformance suite's option, markers and fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.conformance.client import Registry
from tests.conformance.repeating import RepeatingTransport


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the suite be turned on registries that know the released standard only."""
    parser.addoption(
        "--only-standard",
        action="store_true",
        help="leave out what the released OCI Distribution 1.1.1 does not ask for",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers of tests that go beyond the released standard."""
    config.addinivalue_line("markers", "newer: asked by the text after OCI Distribution 1.1.1")
    config.addinivalue_line("markers", "entrepot: a decision of ours, or what 1.1.1 leaves open")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what `--only-standard` leaves out."""
    if not only_standard(config):
        return
    beyond = [item for item in items if _is_beyond_standard(item)]
    config.hook.pytest_deselected(items=beyond)
    items[:] = [item for item in items if not _is_beyond_standard(item)]


def only_standard(config: pytest.Config) -> bool:
    """Tell whether `--only-standard` was given (pytest may load this file after its options)."""
    return bool(config.getoption("only_standard", default=False))


def _is_beyond_standard(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("newer", "entrepot"))


@pytest.fixture(scope="session")
def registry(
    request: pytest.FixtureRequest, registry_url: str, namespace: str
) -> Iterator[Registry]:
    """Return a client of the registry under test."""
    is_ours = request.config.getoption("--registry") is None
    transport = RepeatingTransport() if is_ours else httpx.HTTPTransport()
    with httpx.Client(
        base_url=registry_url, transport=transport, follow_redirects=True, timeout=30
    ) as http:
        yield Registry(http, namespace, only_standard(request.config))


@pytest.fixture
def repository(registry: Registry) -> str:
    """Return the name of a repository that does not exist yet."""
    return registry.new_repository()
