"""What a registry holds in memory before its first request, and what it has loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from benchmarks.processes import process_tree, proportional_bytes
from tests.databases import planted, program_environment
from tests.entrepot import initialized
from tests.live import start_registry

MOST_MIB: Final = 170
"""It is 138, also with PostgreSQL; less if other programs share the libraries."""
LATER: Final = frozenset(
    {"httpx", "rich", "pygments"}  # identity providers, tables of the command line
    | {"alembic", "mako"}  # migrations
    | {"boto3", "botocore"}  # keys in AWS KMS
    | {"psycopg", "prometheus_client"}  # PostgreSQL, --metrics
    | {"registry.cli.transport", "registry.backup"}
    | {"email.policy", "smtplib", "registry.mail"}  # a smarthost
    | {"acme", "awscrt", "dns", "dnslib", "cloudcore.storage.s3.app"}  # certificates, S3
    | {"difflib"}  # what is misspelled
)

_LOADED: Final = """
import asyncio, sys
from pathlib import Path
from registry.cli.run_server import load_before_fork
from registry.cli.serve import run_serve
from registry.main import Registry
from registry.served import SERVE
from registry.settings import Settings

settings = Settings(data=Path(sys.argv[1]), workers=2)
load_before_fork(settings, SERVE)
print(*sys.modules)
before = set(sys.modules)

async def start():
    registry = Registry(settings, SERVE)
    await registry.start()
    await registry.stop()

asyncio.run(start())
print(*(name for name in sys.modules if name not in before))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an install."""
    data = tmp_path_factory.mktemp("install") / "data"
    initialized(planted(data))
    return data


def test_what_only_some_installs_need_is_loaded_later_and_the_rest_before_the_fork(
    data: Path,
) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _LOADED, str(data)],
        env=program_environment(),
        capture_output=True,
        check=True,
        text=True,
    )
    loaded, by_a_worker = (set(line.split()) for line in found.stdout.splitlines())
    assert {"registry.console.app", "registry.control.routes"} <= loaded
    assert loaded & LATER == set()
    assert not by_a_worker


def test_two_workers_share_the_memory_of_their_parent(data: Path) -> None:
    registry = start_registry(data, "--workers", "2", command="serve", forks=False)
    try:
        pids = process_tree(registry.process.pid)
        held = sum(proportional_bytes(pid) for pid in pids)
        assert len(pids) == 3
        assert len(list(Path(f"/proc/{registry.process.pid}/task").iterdir())) == 1
        assert held < MOST_MIB << 20
    finally:
        assert registry.stop() == 0, registry.log
