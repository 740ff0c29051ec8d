"""Commands on a registry's machine refuse a folder without a registry: its name may be a typo."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.cli.main import main

ADMIN = "admin@example.org"
DIGEST = f"sha256:{'0' * 64}"
COMMANDS = [
    ("fsck",),
    ("fsck", "--remove-orphans"),
    ("scrub",),
    ("scrub", "status"),
    ("seal",),
    ("seal", "status"),
    ("gc", "orphans"),
    ("gc", "restore-orphans", "--all"),
    ("gc", "accept-database"),
    ("gc", "recover", "acme/app", DIGEST),
    ("reset-password", ADMIN),
    ("new-access-key", "admin"),
    ("restore-admin", "--account", "acme", "--email", ADMIN),
]


pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("is_there", [False, True], ids=["no folder", "an empty folder"])
def test_a_folder_without_a_registry_is_refused_and_left_as_it_is(
    command: tuple[str, ...], is_there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "typo"
    if is_there:
        data.mkdir()
    assert main([*command, "--data", str(data)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"entrepot: there is no account in {data}; name its folder by --data or --config, or "
        "first run "
        "'entrepot init --account HANDLE --admin-email ADDRESS'\n"
    )
    assert list(tmp_path.rglob("*")) == ([data] if is_there else [])


def test_a_database_without_a_registry_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of the blobs may be the right one."""
    database = tmp_path / "typo.db"
    monkeypatch.setenv("ENTREPOT_DATABASE_URL", f"sqlite:///{database}")
    (tmp_path / "data").mkdir()
    assert main(["fsck", "--data", str(tmp_path / "data")]) == 2
    told = capsys.readouterr().err
    assert (
        "there is no account in the database of ENTREPOT_DATABASE_URL; name the right one, or"
        in told
    )
    assert not database.exists()


@pytest.mark.parametrize("command", ["serve", "init", "fsck"])
def test_a_folder_named_as_the_database_is_refused_and_keeps_its_mode(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The folder may be ``/var/lib``, which other programs read."""
    folder = tmp_path / "lib"
    for each in (folder, tmp_path / "data"):
        each.mkdir()
    folder.chmod(0o755)
    monkeypatch.setenv("ENTREPOT_DATABASE_URL", f"sqlite:///{folder}")
    new = ("--account", "acme", "--admin-email", ADMIN) if command == "init" else ()
    assert main([command, *new, "--data", str(tmp_path / "data")]) == 2
    assert f"the database {folder} is a folder; name a file in it" in capsys.readouterr().err
    assert folder.stat().st_mode & 0o777 == 0o755
