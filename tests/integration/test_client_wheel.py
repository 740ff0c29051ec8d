"""The wheel that a registry hands out: the build's own files, which can be installed and run."""

from __future__ import annotations

import base64
import csv
import io
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest

from registry.console.addresses import MY_ACCOUNT
from registry.console.client_wheel import client_wheel, wheel_name
from tests.databases import ROOT
from tests.installed_wheel import install_wheel
from tests.integration.console_access import see
from tests.integration.console_shop import Shop, open_shop
from tests.integration.served_world import URL

MADE_BY_EACH = ("RECORD", "WHEEL")
"""Files that name the tool that made the wheel, or list the others."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that the build makes of the sources."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.iterdir()
    return wheel


def files_of(archive: ZipFile) -> dict[str, bytes]:
    return {
        name: archive.read(name)
        for name in archive.namelist()
        if not name.endswith(MADE_BY_EACH) and "__pycache__" not in name
    }


def test_it_has_what_the_build_puts_in(built: Path) -> None:
    wheel = client_wheel()
    assert wheel_name() == built.name
    with ZipFile(io.BytesIO(wheel.content)) as ours, ZipFile(built) as theirs:
        own, expected = files_of(ours), files_of(theirs)
        record = next(name for name in ours.namelist() if name.endswith("/RECORD"))
        listed = list(csv.reader(io.TextIOWrapper(ours.open(record), encoding="utf-8")))
        assert {row[0] for row in listed} == set(ours.namelist())
        for path, digest, size in listed:
            if path != record:
                content = ours.read(path)
                told = base64.urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
                assert (digest, size) == (f"sha256={told}", str(len(content)))
    assert own.keys() == expected.keys()
    about = next(name for name in own if name.endswith("/METADATA"))
    assert {n: v for n, v in own.items() if n != about} == {
        n: v for n, v in expected.items() if n != about
    }
    # What it depends on and how it is called; the text of the README may be newer in the sources.
    assert own[about].partition(b"\n\n")[0] == expected[about].partition(b"\n\n")[0]


@pytest.mark.timeout(300)
def test_it_installs_and_runs_away_from_the_sources(tmp_path: Path) -> None:
    wheel = client_wheel()
    file = tmp_path / wheel_name()
    file.write_bytes(wheel.content)
    commands = install_wheel(file, tmp_path / "venv")
    where = "import registry, cloudcore; print(registry.__file__, cloudcore.__file__)"
    found = subprocess.run(
        [commands / "python", "-c", where], check=True, capture_output=True, text=True
    )
    assert all(path.startswith(str(tmp_path)) for path in found.stdout.split())
    command = [str(commands / "entrepot"), "container-passwords", "create", "--help"]
    helped = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "--client PROGRAM" in helped.stdout


async def test_anybody_downloads_it_and_its_digest_is_shown(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data") as shop:
        page = await see(shop, MY_ACCOUNT)
        wheel = client_wheel()
        path = f"/console/client/{wheel_name()}"
        assert f"pipx install {URL}{path}<" in page
        assert f">{wheel.sha256}<" in page
        await check_download(shop, path)


async def check_download(shop: Shop, path: str) -> None:
    wheel, transport = client_wheel(), httpx.ASGITransport(shop.app)
    async with httpx.AsyncClient(transport=transport, base_url=URL) as nobody:
        answer = await nobody.get(path)
        assert (answer.status_code, answer.content) == (200, wheel.content)
        tag = answer.headers["etag"]
        assert tag == f'"{wheel.sha256}"'
        for held in (tag, f"W/{tag}", f'"other" , {tag}', f'W/"a,b",W/{tag}', "*"):
            again = await nobody.get(path, headers={"If-None-Match": held})
            assert (again.status_code, again.content) == (304, b""), held
            assert again.headers["etag"] == tag
        twice = [("If-None-Match", '"other"'), ("If-None-Match", tag)]
        assert (await nobody.get(path, headers=twice)).status_code == 304
        for held in ('"other"', 'W/"other"', wheel.sha256, '"*"', ""):
            again = await nobody.get(path, headers={"If-None-Match": held})
            assert (again.status_code, again.content) == (200, wheel.content), held
        assert (await nobody.get(path.replace("-0.", "-9."))).status_code == 404
        assert (await nobody.post(path)).status_code in (404, 405)
