"""The version before the newest migration and this one, side by side on one database.

A fleet is upgraded node by node: the first node of the new version migrates the tables while those
of the old one serve (CONTRIBUTING.md, "Expand and contract").
"""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

import httpx
import pytest

from registry.metadata.migrations import revisions
from tests.databases import ROOT, program, program_environment
from tests.nodes import LiveFleet, LiveNode, initialized_fleet, until
from tests.postgresql import free_port

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(400)]

VERSIONS: Final = "src/registry/metadata/migrations/versions"
MOST_COMMITS: Final = 2000


def git(*arguments: str, told: str = "") -> bytes:
    """Return what git prints of this tree, or skip the test without its history."""
    try:
        ended = subprocess.run(
            ["git", "-C", str(ROOT), *arguments],
            input=told.encode(),
            capture_output=True,
            check=False,
            timeout=60,
        )
    except FileNotFoundError:
        pytest.skip("git is not installed, and the version before is in its history")
    if ended.returncode != 0:
        pytest.skip(f"the history of the sources is not here: {ended.stderr.decode().strip()}")
    return ended.stdout


def commit_before(newest: str) -> str:
    """Return the last commit that has all revisions of the tables but the newest, as they are now.

    In another order, or with other contents, they were never released: lines of work that came
    together had numbers that were changed then.
    """
    entries = git("ls-tree", f"HEAD:{VERSIONS}").splitlines()
    wanted = [each for each in entries if f"\t{newest}_".encode() not in each]
    commits = git("rev-list", f"--max-count={MOST_COMMITS}", "HEAD").decode().split()
    places = "".join(f"{each}:{VERSIONS}\n" for each in commits)
    trees = git("cat-file", "--batch-check=%(objectname)", told=places).decode().splitlines()
    fits: dict[str, bool] = {}
    for commit, tree in zip(commits, trees, strict=True):
        if tree not in fits:
            is_there = " " not in tree  # else git says what is missing
            fits[tree] = is_there and git("ls-tree", tree).splitlines() == wanted
        if fits[tree]:
            return commit
    pytest.skip(f"none of the last {len(commits)} commits has all revisions but {newest}")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sources from before the newest migration."""
    newest = revisions()[-1]
    folder = tmp_path_factory.mktemp("before")
    archived = git("archive", commit_before(newest), "src")
    with tarfile.open(fileobj=BytesIO(archived)) as archive:
        archive.extractall(folder)
    names = {each.name[:4] for each in (folder / VERSIONS).glob("[0-9]*.py")}
    assert names == {*revisions()[:-1]}
    return folder / "src"


@pytest.fixture
def fleet(postgresql_url: str, tmp_path: Path, before: Path) -> Iterator[LiveFleet]:
    """Return an install that the version before has made."""
    with initialized_fleet(tmp_path, postgresql_url, PYTHONPATH=str(before)) as made:
        yield made


def test_the_version_before_serves_on_while_this_one_migrates_and_serves(
    fleet: LiveFleet, before: Path
) -> None:
    old = fleet.start("east")
    kept = old.call("POST", "/v1/queues", {"name": "from-before"})["queue"]
    new = fleet.start("west", PYTHONPATH=str(ROOT / "src"))
    with subprocess.Popen(
        program("registry", "serve", "--port", str(free_port()), "--data", str(old.data)),
        env={**program_environment(), **fleet.environment, "PYTHONPATH": str(before)},
        stderr=subprocess.PIPE,
        text=True,
    ) as refused:
        for node, other in ((old, new), (new, old)):
            work_on(node, other)
            assert node.call("GET", f"/v1/queues/{kept['id']}")["queue"]["name"] == "from-before"
        _, said = refused.communicate(timeout=110)
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
