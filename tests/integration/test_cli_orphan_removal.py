"""``entrepot fsck --remove-orphans``: only what nobody owns goes, and only if that is credible."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from cloudcore.clock import system_clock, uuid7
from registry.cli.main import main
from registry.metadata.database import migrate
from tests.live import start_registry
from tests.schedules import postpone

HOUR = 3600 * 1_000_000
KEPT = b"somebody's" * 10_000
DIGEST = f"sha256:{hashlib.sha256(KEPT).hexdigest()}"
UPLOADS = "/v2/dev/app/blobs/uploads/"


pytestmark = pytest.mark.usefixtures("no_settings")


@contextmanager
def serving(data: Path) -> Iterator[httpx.Client]:
    registry = start_registry(data)
    try:
        with httpx.Client(base_url=registry.url) as client:
            yield client
    finally:
        registry.stop()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the data of a registry with a blob, and where an upload in it goes on."""
    data = tmp_path_factory.mktemp("orphans") / "data"
    with serving(data) as client:
        answer = client.post(UPLOADS, params={"digest": DIGEST}, content=KEPT)
        assert answer.status_code == 201
        location = client.post(UPLOADS).headers["location"]
        assert client.patch(location, content=KEPT).status_code == 202
    return data, location


@pytest.fixture
def data(sound: tuple[Path, str], tmp_path: Path) -> Path:
    """Return a copy that the test may change, whose orphans no registry looks for by itself.

    The turn of the registry's own scan is copied too, and overdue at times.
    """
    data = Path(shutil.copytree(sound[0], tmp_path / "data"))
    postpone(data, "registry.orphan_scan")
    return data


def add_orphan(data: Path, place: str | None = None, hours: int = 2) -> Path:
    """Leave bytes without a row, as a process does that dies at the wrong moment."""
    object_id = uuid7(system_clock() - hours * HOUR)
    if place is not None:
        object_id = object_id[:-2] + place
    folder = "uploads" if place is None else f"objects/{place}"
    file = data / "blobs" / folder / object_id
    file.write_bytes(b"nobody's")
    return file


def remove_orphans(data: Path) -> int:
    return main(("fsck", "--quick", "--remove-orphans", "--data", str(data)))


def stored(data: Path) -> int:
    return sum(each.is_file() for each in (data / "blobs").rglob("*"))


def test_orphans_are_removed_beside_the_registry(
    data: Path, sound: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(data) as client:
        location = client.post(UPLOADS).headers["location"]
        assert client.patch(location, content=KEPT).status_code == 202
        old = [add_orphan(data, "00"), add_orphan(data, "ff"), add_orphan(data)]
        young = [add_orphan(data, "00", hours=0), add_orphan(data, hours=0)]
        assert remove_orphans(data) == 0
        assert capsys.readouterr().out.splitlines()[-2:] == [
            "1 blobs and 0 manifests checked: 0 violations, 3 orphans",
            "3 orphans set aside for 168 h",
        ]
        assert [each.exists() for each in (*old, *young)] == [False] * 3 + [True] * 2
        for each in young:
            each.unlink()
        assert remove_orphans(data) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "0 orphans set aside"
        assert client.get(f"/v2/dev/app/blobs/{DIGEST}").content == KEPT
        for under_way in (location, sound[1]):
            put = client.put(under_way, params={"digest": DIGEST})
            assert put.status_code == 201


def test_files_of_another_database_are_left_alone(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add_orphan(data, "00")
    before = stored(data)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    migrate(other)
    monkeypatch.setenv("ENTREPOT_DATABASE_URL", other)
    assert remove_orphans(data) == 1
    told = capsys.readouterr()
    assert " 1 orphans\n" in told.out  # the others are too young to tell
    assert told.err.splitlines()[-1].startswith(
        "entrepot: the database is older than the blobs, or another's"
    )
    assert stored(data) == before


def test_many_orphans_are_none(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One in each of many places, so that each place alone looks well."""
    for place in range(21):
        add_orphan(data, f"{place:02x}")
    before = stored(data)
    assert remove_orphans(data) == 1
    assert "21 of 23 stored files belong to no row" in capsys.readouterr().err
    assert stored(data) == before


def test_a_place_full_of_orphans_is_left_alone(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owned = [add_orphan(data, "aa").name for _ in range(300)]
    with closing(sqlite3.connect(data / "metadata.db", timeout=30)) as raw, raw:
        raw.executemany(
            "INSERT INTO quarantined_objects (id, account_id, digest, size, stored_size, encoding,"
            " swept_at, stored_id) SELECT ?, id, ?, 8, 8, 'plain', ?, ? FROM accounts",
            [
                (str(uuid4()), f"sha256:{number:064x}", system_clock(), each)
                for number, each in enumerate(owned)
            ],
        )
    gone = add_orphan(data, "00")
    for _ in range(21):
        add_orphan(data)
    before = stored(data)
    assert remove_orphans(data) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "entrepot: 1 orphans set aside, but none from uploads: of the files there more belong to "
        "no row than crashes leave; is this the right database?"
    )
    assert not gone.exists()
    assert stored(data) == before
    (orphan,) = (data / "blobs" / "orphans").iterdir()
    assert orphan.name.endswith(f".object.{gone.name}")


def test_nothing_is_removed_while_something_is_wrong(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = add_orphan(data, "00")
    with closing(sqlite3.connect(data / "metadata.db", timeout=30)) as raw, raw:
        raw.execute("UPDATE repositories SET size_bytes = 1")
    assert remove_orphans(data) == 1
    told = capsys.readouterr()
    assert told.out.startswith("I8 ")
    assert told.err.splitlines()[-1] == (
        "entrepot: no orphans were set aside: wrong metadata may be wrong about them too; mend what"
        " is listed above first"
    )
    assert old.exists()
