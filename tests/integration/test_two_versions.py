"""A version and the next one, which has a migration more, side by side on one database.

A fleet is upgraded node by node: the first node of the new version migrates the tables while those
of the old one serve (CONTRIBUTING.md, "Expand and contract").
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.databases import program, program_environment
from tests.nodes import LiveFleet, LiveNode, initialized_fleet
from tests.postgresql import free_port
from tests.versions import two_versions
from tests.waiting import until

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the sources of a version and of the next one, which has a migration more."""
    return two_versions(tmp_path_factory.mktemp("versions"))


@pytest.fixture
def fleet(postgresql_url: str, tmp_path: Path, versions: tuple[Path, Path]) -> Iterator[LiveFleet]:
    with initialized_fleet(tmp_path, postgresql_url, PYTHONPATH=str(versions[0])) as made:
        yield made


def test_a_version_serves_on_while_the_next_one_migrates_and_serves(
    fleet: LiveFleet, versions: tuple[Path, Path]
) -> None:
    before, after = map(str, versions)
    old = fleet.start("east")
    kept = old.call("POST", "/v1/queues", {"name": "from-before"})["queue"]
    new = fleet.start("west", PYTHONPATH=after)
    with subprocess.Popen(
        program("registry", "serve", "--port", str(free_port()), "--data", str(old.data)),
        env={**program_environment(), **fleet.environment, "PYTHONPATH": before},
        stderr=subprocess.PIPE,
        text=True,
    ) as refused:
        try:
            for node, other in ((old, new), (new, old)):
                work_on(node, other)
                found = node.call("GET", f"/v1/queues/{kept['id']}")["queue"]
                assert found["name"] == "from-before"
            _, said = refused.communicate(timeout=110)
        finally:
            refused.kill()
    assert refused.returncode != 0
    assert "run the version that wrote it or a later one" in said
    for node in (old, new):
        node.registry.stop()
        assert "Traceback" not in node.registry.log, node.registry.log


def work_on(node: LiveNode, other: LiveNode) -> None:
    """Do of everything a little at one node, and see it at the other."""
    name = f"of-{node.name}"
    for path, body in (
        ("/v1/queues", {"name": name}),
        ("/v1/topics", {"name": name}),
        ("/v1/buckets", {"name": f"{name}-bucket"}),
        ("/v1/keys", {"name": name}),
        ("/v1/service-accounts", {"name": name}),
        ("/v1/vpcs", {"name": name, "cidr_ipv4": "10.0.0.0/16"}),
        ("/v1/repositories", {"name": name}),
    ):
        (made,) = node.call("POST", path, body).values()
        found = other.call("GET", path)
        assert name in str(found), path
        assert made["id"] in str(found), path
    push_and_pull(node, other, f"acme/{name}")
    (run,) = node.call("POST", "/v1/garbage-collection/runs").values()
    until(lambda: "succeeded" in str(other.call("GET", f"/v1/garbage-collection/runs/{run['id']}")))
    document = httpx.get(f"{node.url}/v1/openapi.json", timeout=60).json()
    for path, methods in document["paths"].items():
        if "get" in methods and "{" not in path:
            answer = node.ask("GET", path)
            assert answer.status_code < 500, f"{path}: {answer.text}"


def push_and_pull(node: LiveNode, other: LiveNode, repository: str) -> None:
    signed = node.bearer(repository)
    image = node.push_image(repository, signed, "now", node.name)
    assert other.digest_of_tag(repository, other.bearer(repository), "now") == image
    moved = other.push_image(repository, signed, "now", f"{node.name} again")
    until(lambda: node.digest_of_tag(repository, signed, "now") == moved)
