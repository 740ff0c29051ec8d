"""``entrepot dev`` and an install with accounts, begun in one place, do not spoil each other."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from registry.cli.main import main, make_parser
from registry.cli.server.options import settings_of
from registry.composition.dev import DEV
from registry.composition.main import Registry, prepare
from registry.settings.settings import Settings
from tests.databases import planted

pytestmark = pytest.mark.usefixtures("no_settings")

INIT = ("init", "--account", "acme", "--admin-email", "admin@example.org")


@pytest.fixture
def dev_data(tmp_path: Path) -> Path:
    """Return the data of a registry that ``entrepot dev`` has served."""
    settings = Settings(data=planted(tmp_path / "dev data"))

    async def serve() -> None:
        registry = Registry(settings, DEV)
        async with registry.open_planes():
            pass

    prepare(settings)
    asyncio.run(serve())
    return settings.data


def test_data_of_dev_are_named_and_another_folder_is_shown(
    dev_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (INIT, ("serve", "--port", "0"), ("new-access-key", "admin")):
        assert main([*command, "--data", str(dev_data)]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(
            f"entrepot: {dev_data} holds the data of 'entrepot dev', which has"
        )
        assert (
            "'entrepot init --account HANDLE --admin-email ADDRESS --data entrepot-data', then"
            " 'entrepot serve --data entrepot-data'" in told.err
        )
        assert f"'entrepot dev --data '{dev_data}''" in told.err  # quoted for the shell
        assert not (dev_data / "root.key").exists()


def test_dev_does_not_open_an_install_with_accounts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert main([*INIT, "--data", str(data)]) == 0
    assert main(["dev", "--port", "0", "--data", str(data)]) == 2
    assert f"{data} holds an install with accounts" in capsys.readouterr().err

    with closing(sqlite3.connect(data / "metadata.db")) as database:
        assert database.execute("SELECT handle FROM accounts").fetchall() == [("acme",)]


def test_both_begin_in_one_place_in_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parser = make_parser()
    dev = settings_of(parser.parse_args(["dev"])).data
    assert {str(dev)} == {"entrepot-dev-data"}
    for command in (INIT, ("serve",), ("fsck",), ("reset-password", "a@example.org")):
        assert settings_of(parser.parse_args(command)).data == Path("entrepot-data")
    assert main([*INIT]) == 0
    assert "\n  entrepot serve\n" in capsys.readouterr().out


def test_serve_on_every_address_needs_a_url(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--host", "0.0.0.0", "--data", str(tmp_path / "data")]) == 2
    assert capsys.readouterr().err == (
        "entrepot: 0.0.0.0 is every address of this machine and no URL for clients: set "
        "ENTREPOT_PUBLIC_URL to the one they use, such as https://registry.example.com, or without "
        "TLS name the host and port they use: --allowed-host HOST:PORT\n"
    )


def test_a_database_of_a_later_version_is_refused_in_a_line(
    dev_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(dev_data / "metadata.db", isolation_level=None)) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    assert main(["fsck", "--data", str(dev_data)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(
        "entrepot: the database is at revision 9999, and this program knows none"
    )
    assert told.count("\n") == 1
