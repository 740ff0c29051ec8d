"""The conformance suite's option, markers and fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.conformance.client import Registry, Repository
from tests.conformance.repeating import RepeatingTransport
from tests.conformance.signing_in import BearerAuth


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the suite be turned on other registries, and on two servers of one registry."""
    parser.addoption(
        "--only-standard",
        action="store_true",
        help="leave out what the released OCI Distribution 1.1.1 does not ask for",
    )
    parser.addoption("--password", help="sign in to --registry with this container login")
    parser.addoption(
        "--beside", help="URL of another server of --registry, whose answers must be the same"
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
    other, password, beside = map(
        request.config.getoption, ("--registry", "--password", "--beside")
    )
    repeats = beside is not None or other is None
    with httpx.Client(
        base_url=registry_url,
        transport=RepeatingTransport(beside) if repeats else httpx.HTTPTransport(),
        auth=None if password is None else BearerAuth(registry_url, password),
        follow_redirects=True,
        timeout=30,
    ) as http:
        yield Registry(http, namespace, only_standard(request.config))


@pytest.fixture
def repository(registry: Registry) -> Repository:
    """Return a repository that does not exist yet."""
    return registry.new_repository()


@pytest.fixture(scope="module")
def shared(registry: Registry) -> Repository:
    """Return a repository of the tests of a module that read what they share."""
    return registry.new_repository()
