"""``entrepot scrub`` and ``seal``: what they print, and how they end."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cloudcore.clock import uuid7
from registry.blobstore.disk.store import FilesystemStore
from registry.cli.main import main
from registry.oci.digest import digest_of
from tests.databases import planted
from tests.entrepot import initialized
from tests.inprocess import Registry, open_registry
from tests.integration.damaged import file_of, flip
from tests.integration.stored_forms import push_blob, push_image

LAYER: Final = b"layer" * 1000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data of a registry of two images."""
    data = planted(tmp_path / "data")

    async def fill(registry: Registry) -> None:
        await push_image(registry, LAYER, "v1")
        await push_image(registry, b"other", "v1", "other")

    with_registry(data, fill)
    return data


def with_registry(data: Path, scenario: Callable[[Registry], Awaitable[None]]) -> None:
    async def play() -> None:
        with closing(FilesystemStore(data / "blobs")) as store:
            async with open_registry(f"sqlite:///{data}/metadata.db", store) as registry:
                await scenario(registry)

    asyncio.run(play())


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    status = main(arguments)
    return status, capsys.readouterr().out.splitlines()


def damage(data: Path) -> None:
    for file in (data / "blobs" / "objects").glob("*/*"):
        if file.read_bytes() == LAYER:
            flip(file)


def test_whole_data_is_read_and_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, (line,) = ended(capsys, "scrub", "--data", str(data), "--limit-rate", "100000000")
    assert status == 0
    assert line.startswith("3 blobs and 2 manifests read, ")
    assert line.endswith("/s: 0 damaged")
    status, (line,) = ended(capsys, "scrub", "--data", str(data), "--older-than", "1")
    assert (status, line.split(" read")[0]) == (0, "0 blobs and 2 manifests")


def test_a_damaged_blob_and_its_images_are_named(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data)
    for _ in range(2):
        status, (blob, image, sums, _) = ended(capsys, "scrub", "--data", str(data))
        assert status == 1
        assert blob.startswith(f"blob {digest_of(LAYER)}: its bytes hash to sha256:")
        assert image.startswith("image dev/app@sha256:")
        assert image.endswith(f" (v1) needs blob {digest_of(LAYER)}")
        assert sums == (
            "1 blobs and 0 manifests are damaged, 1 images need them: a push of the same image"
            " heals them"
        )
    assert ended(capsys, "scrub", "--data", str(data), "--repository", "dev/other")[0] == 0
    assert ended(capsys, "scrub", "--data", str(data), "--repository", "dev/app")[0] == 1
    assert main(["scrub", "--data", str(data), "--repository", "dev/none"]) == 3
    assert "dev/none" in capsys.readouterr().err


def test_a_damaged_manifest_and_its_image_are_named(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(data / "metadata.db", isolation_level=None)) as connection:
        found = "SELECT digest FROM manifests ORDER BY id LIMIT 1"
        ((digest,),) = connection.execute(found).fetchall()
        connection.execute("UPDATE manifest_bodies SET body = x'7b7d' WHERE digest = ?", (digest,))
    status, (manifest, image, sums, read) = ended(capsys, "scrub", "--data", str(data))
    assert status == 1
    assert manifest.startswith(f"manifest {digest}: its bytes ")
    assert image == f"image dev/app@{digest} (v1) has this manifest"
    assert sums.startswith("0 blobs and 1 manifests are damaged, 1 images need them")
    assert read.endswith(": 1 damaged")


def test_the_status_tells_how_far_the_background_has_come(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data)
    assert ended(capsys, "scrub", "--data", str(data))[0] == 1
    for arguments in (("--data", str(data), "status"), ("status", "--data", str(data))):
        status, lines = ended(capsys, "scrub", *arguments)
        assert (status, lines[0]) == (
            0,
            "every blob is read once in 30 days, at 33.6 MB/s or less",
        )
        assert lines[1].startswith("verified in that time: 2 of 3 blobs, ")
        assert lines[2].startswith("verified longest ago: ")
        assert lines[3:] == ["known to be damaged: 1 blobs"]
    status, lines = ended(capsys, "scrub", "status", "--data", str(data), "--output", "json")
    record = json.loads("\n".join(lines))
    assert (record["blobs"], record["verified_blobs"], record["damaged_blobs"]) == (3, 2, 1)
    assert record["turn_ended_at"] is None


SECRET = b"a secret layer " * 2000


pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data of an install with two plain blobs, which tests copy."""
    data = tmp_path_factory.mktemp("install") / "data"
    initialized(planted(data), account="dev")
    fill(data, SECRET, b"other")
    return data


@pytest.fixture
def plain(install: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(install, tmp_path / "data"))


def fill(data: Path, *contents: bytes, damages: bool = False) -> None:
    async def push(registry: Registry) -> None:
        for content in contents:
            digest = await push_blob(registry, content)
            if damages:
                flip(await file_of(registry, data / "blobs", digest))

    with_registry(data, push)


def test_what_is_plain_is_sealed_and_told(plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = ended(capsys, "seal", "status", "--data", plain)
    assert (status, lines[1].split(",")[0]) == (0, "stored plain: 2 of 2 blobs")
    status, (line,) = ended(capsys, "seal", "--data", plain, "--limit-rate", "100000000")
    assert status == 0
    assert line.startswith("2 blobs sealed, ")
    status, (line,) = ended(capsys, "seal", "--data", plain)
    assert (status, line.split(",")[0]) == (0, "0 blobs sealed")
    status, lines = ended(capsys, "seal", "status", "--data", plain, "--output", "json")
    told = json.loads("\n".join(lines))
    assert (status, told["blobs"], told["plain_blobs"], told["plain_bytes"]) == (0, 2, 0, 0)


def test_a_damaged_blob_is_named(plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(Path(plain), b"damaged", damages=True)
    status, (damaged, healing, sealed) = ended(capsys, "seal", "--data", plain)
    assert status == 1
    assert "its bytes hash to sha256:" in damaged
    assert healing == "1 blobs are damaged: a push of the same image heals them"
    assert sealed.startswith("2 blobs sealed, ")


def test_nothing_is_sealed_beside_a_database_that_went_back(
    plain: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(FilesystemStore(Path(plain) / "blobs")) as store:
        asyncio.run(store.save_generation(uuid7()))
    assert main(["seal", "--data", plain]) == 1
    words = "nothing is sealed: the database is older than the blobs"
    assert words in capsys.readouterr().err
    assert ended(capsys, "seal", "status", "--data", plain)[1][1].startswith("stored plain: 2 of 2")


def test_nothing_is_sealed_if_sealing_is_off(
    plain: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_SEALING", "off")
    assert main(["seal", "--data", plain]) != 0
    assert "sealing is off" in capsys.readouterr().err
