"""``entrepot fsck``: silent on a sound registry, exact about every kind of damage."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.integration.damaged import cut, flip, grow
from tests.live import start_registry
from tests.loaded import ENTREPOT, program_environment, run_loaded

CONFIG = b'{"architecture": "amd64", "os": "linux"}'
LAYER = b"layer" * 1000
SOUND = "2 blobs and 1 manifests checked: 0 violations, 0 orphans"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def fsck(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_loaded(ENTREPOT, ["fsck", "--data", str(data), *options], program_environment())


def push_image(url: str) -> None:
    """Push one tagged image, and leave one upload with bytes open."""
    descriptors = []
    with httpx.Client(base_url=url) as client:
        for blob in (CONFIG, LAYER):
            answer = client.post(
                "/v2/dev/app/blobs/uploads/", params={"digest": digest(blob)}, content=blob
            )
            assert answer.status_code == 201
            descriptors.append(
                {"mediaType": "application/x", "digest": digest(blob), "size": len(blob)}
            )
        manifest = {"schemaVersion": 2, "config": descriptors[0], "layers": descriptors[1:]}
        answer = client.put(
            "/v2/dev/app/manifests/v1",
            content=json.dumps(manifest),
            headers={"content-type": MANIFEST_TYPE},
        )
        assert answer.status_code == 201
        location = client.post("/v2/dev/app/blobs/uploads/").headers["location"]
        assert client.patch(location, content=b"some bytes").status_code == 202


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data of a registry that was used and stopped; its blobs are plain files."""
    data = tmp_path_factory.mktemp("fsck") / "data"
    registry = start_registry(
        data, env={"ENTREPOT_INLINE_MAX_BYTES": "0", "ENTREPOT_SEALING": "off"}
    )
    try:
        push_image(registry.url)
        beside = fsck(data)
        told = beside.stderr.splitlines()[-1:]
        assert (beside.returncode, told) == (0, ["manifests 1 of 1, 0.00 GB read"])
    finally:
        registry.stop()
    return data


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    """Return a copy of sound data, to be damaged."""
    copy = tmp_path / "data"
    subprocess.run(["cp", "-a", str(sound), str(copy)], check=True)
    return copy


def query(data: Path, statement: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(data / "metadata.db", isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def object_file(data: Path, blob: bytes) -> Path:
    ((name,),) = query(data, f"SELECT id FROM blob_objects WHERE digest = '{digest(blob)}'")
    return data / "blobs" / "objects" / name[-2:] / name


def staged_file(data: Path) -> Path:
    (staged,) = (data / "blobs" / "uploads").iterdir()
    return staged


def layer(damage: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return what damages the file of the layer."""
    return lambda data: damage(object_file(data, LAYER))


flip_a_bit, truncate, lengthen = layer(flip), layer(cut), layer(grow)


def change_manifest(data: Path) -> None:
    query(data, "UPDATE manifest_bodies SET body = x'7b7d'")


def drop_edge(data: Path) -> None:
    query(data, f"DELETE FROM manifest_blobs WHERE digest = '{digest(LAYER)}'")


def counts(column: str, value: int) -> Callable[[Path], object]:
    """Return what sets a counter of the repository."""
    return lambda data: query(data, f"UPDATE repositories SET {column} = {value}")


DAMAGES: dict[str, list[tuple[Callable[[Path], object], str, str]]] = {
    "bytes": [
        (flip_a_bit, "I1, I5", "hash to"),
        (lambda data: object_file(data, CONFIG).unlink(), "I1, I5", "gone"),
        (lambda data: os.truncate(staged_file(data), 3), "I2", "10 bytes acknowledged, 3 staged"),
        (change_manifest, "I3", "in dev/app: its bytes hash to something else"),
    ],
    "lengths": [
        (truncate, "I1, I5", "4999 bytes instead of 5000"),
        (lambda data: staged_file(data).unlink(), "I2", "10 bytes acknowledged, 0 staged"),
    ],
    "counters": [
        (lengthen, "I1, I5", "5001 bytes instead of 5000"),
        (counts("size_bytes", 1), "I8", "size_bytes"),
        (counts("tag_count", 9), "I8", "tag_count"),
        (lambda data: query(data, "DELETE FROM repository_folders"), "I8", "folder ''"),
        (lambda data: query(data, "UPDATE repository_blobs SET manifest_refs = 7"), "I8", "refs"),
    ],
    "edges": [
        (drop_edge, "I3", "2 blobs are listed, 1 are held"),
        (counts("deleted_tag_count", 1), "I8", "deleted_"),
    ],
    "tags": [(lambda data: query(data, "UPDATE tags SET manifest_id = 'x'"), "I4", "tag v1")],
    "links": [
        (
            lambda data: query(data, "UPDATE repository_blobs SET object_id = 'x'"),
            "I4",
            f"blob {digest(LAYER)}: no object x",
        )
    ],
}
"""By what is done to one registry: each damage, the invariant, and words that name it."""


@pytest.mark.parametrize("together", DAMAGES)
def test_damage_is_found_and_named(data: Path, together: str) -> None:
    for damage, _, _ in DAMAGES[together]:
        damage(data)
    found = fsck(data)
    assert found.returncode == 1
    lines = found.stdout.splitlines()
    for _, invariant, words in DAMAGES[together]:
        assert any(line.startswith(invariant) and words in line for line in lines), (words, lines)


def test_the_images_that_a_damage_hits_are_named(data: Path) -> None:
    flip_a_bit(data)
    found = fsck(data)
    ((name,),) = query(data, "SELECT digest FROM manifests")
    lines = found.stdout.splitlines()
    assert f"image dev/app@{name} (v1) needs blob {digest(LAYER)}" in lines
    assert any(line.startswith("1 blobs are damaged, 1 images need them") for line in lines)


def test_sound_data_has_no_findings(sound: Path) -> None:
    found = fsck(sound)
    assert (found.returncode, found.stdout) == (0, f"{SOUND}\n")


def test_quick_looks_at_presence_and_size_only(data: Path) -> None:
    flip_a_bit(data)
    assert fsck(data, "--quick").returncode == 0
    for damages in ([truncate], [lengthen, lengthen]):
        for damage in damages:
            damage(data)
        assert fsck(data, "--quick").returncode == 1


def test_lost_bytes_of_an_expired_session_are_no_violation(data: Path) -> None:
    """The purge deletes the bytes before the row."""
    staged_file(data).unlink()
    assert fsck(data).returncode == 1
    query(data, "UPDATE uploads SET expires_at = 1")
    found = fsck(data)
    assert (found.returncode, found.stdout.splitlines()[-1]) == (0, SOUND)


def test_bytes_nobody_owns_are_told_but_no_violation(data: Path) -> None:
    name = str(uuid.uuid4())
    (data / "blobs" / "objects" / name[-2:] / name).write_bytes(b"left by a crash")
    (data / "blobs" / "uploads" / str(uuid.uuid4())).write_bytes(b"left too")
    found = fsck(data)
    assert found.returncode == 0
    assert "0 violations, 2 orphans" in found.stdout


def test_committed_bytes_whose_row_was_never_written_are_no_violation(data: Path) -> None:
    """The next request of the session takes them back."""
    staged = staged_file(data)
    staged.rename(data / "blobs" / "objects" / staged.name[-2:] / staged.name)
    found = fsck(data)
    assert (found.returncode, found.stdout.splitlines()[-1]) == (0, SOUND)
