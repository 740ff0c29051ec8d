"""What `make dist` hands out: sources that build the wheel, and a wheel that installs and runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest

from tests.databases import ROOT
from tests.installed_wheel import install_wheel
from tests.live import READY


def build(sources: Path, target: str, folder: Path) -> Path:
    """Build a wheel or an sdist of the sources; return its file."""
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that is built of the sources that are handed out."""
    sdist = build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    (sources,) = folder.iterdir()
    assert sources.name == f"entrepot-{metadata.version('entrepot')}"
    return build(sources, "wheel", tmp_path_factory.mktemp("wheel"))


def test_the_changelog_has_this_version() -> None:
    heading = f"\n## [{metadata.version('entrepot')}] - 20"
    assert heading in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    """Also migrations, templates, and other data."""
    sources = {
        file.relative_to(ROOT / "src").as_posix(): file.read_bytes()
        for file in (ROOT / "src").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with ZipFile(wheel) as archive:
        packed = {
            each: archive.read(each) for each in archive.namelist() if "dist-info" not in each
        }
    assert packed == sources


def test_it_runs_where_the_sources_are_not(wheel: Path, tmp_path: Path) -> None:
    commands = install_wheel(wheel, tmp_path / "venv")

    def run(*arguments: str) -> str:
        return subprocess.run(
            [commands / "entrepot", *arguments],
            env=environment(),
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    assert run("--version") == f"entrepot {metadata.version('entrepot')}\n"
    data = tmp_path / "data"
    assert "access key" in run(
        *("init", "--account", "acme", "--admin-email", "a@example.org", "--data", str(data))
    )
    with served(commands / "entrepot", data) as url, httpx.Client(base_url=url) as client:
        for path in ("/readyz", "/v1/openapi.json", "/v1/regions"):
            assert client.get(path).status_code == 200, path
        page = client.get("/v1/oauth/authorize", headers={"Accept": "text/html"})
        assert "<title>" in page.text


@contextmanager
def served(command: Path, data: Path) -> Iterator[str]:
    """Serve an install during the block, and give its URL."""
    with subprocess.Popen(
        [command, "serve", "--port", "0", "--data", str(data)],
        env=environment(),
        cwd=data.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            told = ""
            for line in process.stdout:
                told += line
                if found := READY.search(line):
                    break
            else:
                pytest.fail(told)
            yield found[1]
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=35)
            assert process.returncode == 0
        finally:
            process.kill()


def environment() -> dict[str, str]:
    """Return the environment of a program that finds nothing of these sources by it."""
    ours = re.compile("PYTHON|ENTREPOT_")
    return {name: value for name, value in os.environ.items() if not ours.match(name)}
