"""``entrepot seal``: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest

from registry.blobstore.disk.store import FilesystemStore
from registry.cli.main import main
from tests.inprocess import open_registry
from tests.integration.damaged import file_of, flip
from tests.integration.stored_forms import push_blob

SECRET = b"a secret layer " * 2000


pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the data of an install with two plain blobs."""
    data = tmp_path / "data"
    init = ["init", "--account", "dev", "--admin-email", "a@example.org", "--data", str(data)]
    assert main(init) == 0
    capsys.readouterr()
    fill(data, SECRET, b"other")
    return str(data)


def fill(data: Path, *contents: bytes, damages: bool = False) -> None:
    async def play() -> None:
        with closing(FilesystemStore(data / "blobs")) as store:
            async with open_registry(f"sqlite:///{data}/metadata.db", store) as registry:
                for content in contents:
                    digest = await push_blob(registry, content)
                    if damages:
                        flip(await file_of(registry, data / "blobs", digest))

    asyncio.run(play())


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    status = main(["seal", *arguments])
    return status, capsys.readouterr().out.splitlines()


def test_what_is_plain_is_sealed_and_told(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = ended(capsys, "status", "--data", data)
    assert (status, lines[1].split(",")[0]) == (0, "stored plain: 2 of 2 blobs")
    status, (line,) = ended(capsys, "--data", data, "--limit-rate", "100000000")
    assert status == 0
    assert line.startswith("2 blobs sealed, ")
    status, (line,) = ended(capsys, "--data", data)
    assert (status, line.split(",")[0]) == (0, "0 blobs sealed")
    status, lines = ended(capsys, "status", "--data", data, "--output", "json")
    told = json.loads("\n".join(lines))
    assert (status, told["blobs"], told["plain_blobs"], told["plain_bytes"]) == (0, 2, 0, 0)


def test_a_damaged_blob_is_named(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(Path(data), b"damaged", damages=True)
    status, (damaged, healing, sealed) = ended(capsys, "--data", data)
    assert status == 1
    assert "its bytes hash to sha256:" in damaged
    assert healing == "1 blobs are damaged: a push of the same image heals them"
    assert sealed.startswith("2 blobs sealed, ")


def test_nothing_is_sealed_if_sealing_is_off(
    data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_SEALING", "off")
    assert main(["seal", "--data", data]) != 0
    assert "sealing is off" in capsys.readouterr().err
