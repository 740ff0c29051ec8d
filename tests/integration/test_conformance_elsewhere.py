"""The same conformance suite where the data plane stands on other ground than by default."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live import ROOT, start_registry

STOCK_SERVER = """
import sys
from pathlib import Path
import uvicorn
from registry.main import create_dev_app, prepare
from registry.settings import Settings

settings = Settings(data=Path(sys.argv[1]))
prepare(settings)
config = uvicorn.Config(create_dev_app(settings), port=0, access_log=False)
uvicorn.Server(config).run()
"""


@contextmanager
def running(command: list[str]) -> Iterator[str]:
    """Run a server and yield the URL it tells."""
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stderr is not None
    with process.stderr as lines:
        try:
            told = next(line for line in lines if "running on" in line)
            yield told.split("running on ")[1].split()[0]
        finally:
            process.terminate()
            lines.read()
            process.wait(30)


# A stock server closes at once when the client half-closes: no answer could reach it.
HALF_CLOSED = [
    f"--deselect=tests/conformance/test_push_streamed.py::{name}"
    for name in (
        "test_broken_patch_keeps_what_came",
        "test_second_writer_is_told_to_wait",
        "test_single_post_that_ends_early",
    )
]


def walk(url: str, *options: str) -> None:
    """Run the conformance suite against `url`."""
    suite = [sys.executable, "-m", "pytest", "tests/conformance", "--registry", url, *options]
    ended = subprocess.run(
        [*suite, "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]


@pytest.mark.timeout(300)
def test_on_a_stock_asgi_server(tmp_path: Path) -> None:
    """Without our protocol there are no held bodies and no ``sendfile``; the answers are equal."""
    with running([sys.executable, "-c", STOCK_SERVER, str(tmp_path / "data")]) as url:
        walk(url, *HALF_CLOSED)


@pytest.mark.timeout(300)
@pytest.mark.postgresql
def test_on_postgresql_with_two_workers(postgresql_database: str, tmp_path: Path) -> None:
    registry = start_registry(
        tmp_path / "data", "--workers", "2", env={"ENTREPOT_DATABASE_URL": postgresql_database}
    )
    try:
        walk(registry.url)
    finally:
        assert registry.stop() == 0


@pytest.mark.timeout(300)
def test_on_sqlite_with_two_workers(tmp_path: Path) -> None:
    registry = start_registry(tmp_path / "data", "--workers", "2")
    try:
        walk(registry.url)
    finally:
        assert registry.stop() == 0
