"""The same conformance suite where the data plane stands on other ground than by default."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.live import ROOT, start_registry
from tests.live_signed_in import serving
from tests.postgresql import free_port
from tests.waiting import until

STOCK_SERVER = """
import sys
from pathlib import Path
import uvicorn
from registry.composition.dev import create_dev_app
from registry.composition.main import prepare
from registry.settings.settings import Settings

settings = Settings(data=Path(sys.argv[1]), database_url=sys.argv[2])
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


# A stock server closes at once when the client half-closes: no answer could reach it. And these
# write their requests by hand, without a bearer.
HALF_CLOSED = [
    f"--deselect=tests/conformance/test_push_streamed.py::{name}"
    for name in (
        "test_broken_patch_keeps_what_came",
        "test_second_writer_is_told_to_wait",
        "test_single_post_that_ends_early",
    )
]


# These are rows about the end of the connection, and a head that a stock server itself refuses.
BAD_INPUT = (
    "tests/integration/test_bad_input.py",
    *(
        f"--deselect=tests/integration/test_bad_input.py::test_case[{rows}"
        for rows in ("U29-", "U32-", "B12-accept-junk]")
    ),
)


def walk(url: str, *options: str) -> None:
    """Run the conformance suite against `url`, with more tests if `options` name them."""
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
@pytest.mark.postgresql
def test_on_a_stock_asgi_server_and_postgresql(postgresql_database: str, tmp_path: Path) -> None:
    """Without our protocol there are no held bodies and no ``sendfile``; the answers are equal.

    Also those to bad input, of which the conformance suite has little.

    What workers on PostgreSQL do beside one another, those of a fleet show.
    """
    command = [sys.executable, "-c", STOCK_SERVER, str(tmp_path / "data"), postgresql_database]
    with running(command) as url:
        walk(url, *BAD_INPUT, *HALF_CLOSED)


# Which manifests are valid depends neither on who pushes them nor on what is kept.
RULES = ("--ignore=tests/conformance/test_manifest_rules.py",)

# A bearer for one repository does not let its holder mount from another that it does not name.
OF_ANY_SOURCE = ("--deselect=tests/conformance/test_mount.py::test_headers_of_a_mount[False]",)


@pytest.mark.timeout(300)
def test_signed_in_beside_a_server_that_keeps_no_answers(tmp_path: Path) -> None:
    """Two workers on SQLite keep what they answer; the other server makes all of it anew."""
    data, metrics = tmp_path / "data", f"127.0.0.1:{free_port()}"
    with serving(data, "--workers", "2", "--metrics", metrics) as install:
        url = install.registry.url
        env = {"ENTREPOT_KEPT_ANSWERS_BYTES": "0", "ENTREPOT_PUBLIC_URL": url}
        other = start_registry(data, command="serve", env=env)
        try:
            signed_in = ("--namespace=acme", f"--password={install.acme.password}")
            walk(url, *signed_in, f"--beside={other.url}", *HALF_CLOSED, *OF_ANY_SOURCE, *RULES)
        finally:
            assert other.stop() == 0
        until(lambda: given_again(metrics) > 100)


def given_again(metrics: str) -> float:
    """Return how many answers the workers gave from memory, at once or after a look."""
    shown = httpx.get(f"http://{metrics}/metrics").text
    counts = dict(re.findall(r'^entrepot_kept_answers_total{outcome="(.*)"} (.*)$', shown, re.M))
    return float(counts["hit"]) + float(counts["confirmed"])
