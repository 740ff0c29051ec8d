"""The settings of database servers, and what a machine must have for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudcore.databases.servers import postgres
from cloudcore.databases.servers.bubblewrap import BubblewrapServers, Listening
from cloudcore.nodes import control_groups
from cloudcore.nodes.control_groups import GroupsMissing
from cloudcore.nodes.node import DriverUnusable
from registry.composition.drivers import check_drivers, database_driver
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

DEFAULTS = Settings(data=Path("here"))


def settings(**changes: str) -> Settings:
    found = {f"ENTREPOT_DATABASE_{name.upper()}": text for name, text in changes.items()}
    return from_environment(found, DEFAULTS)


def test_no_server_runs_until_the_operator_wants_it() -> None:
    assert database_driver(DEFAULTS) is None
    assert DEFAULTS.node.node(Path("here")).capabilities == ("networks", "backups")
    chosen = settings(driver="bubblewrap", networks="10.0.0.0/8, 192.0.2.0/24")
    assert database_driver(chosen) is not None
    assert "databases" in chosen.node.node(Path("here")).capabilities
    assert chosen.node.database_range == (20_000, 20_999)
    assert [str(each) for each in chosen.node.registered_networks] == [
        "10.0.0.0/8",
        "192.0.2.0/24",
    ]


def servers(tmp_path: Path) -> BubblewrapServers:
    return BubblewrapServers(tmp_path, Listening("127.0.0.1", 20_000, 1_100_000))


def test_a_machine_without_the_programs_says_which_package_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DriverUnusable, match="install the package bubblewrap"):
        servers(tmp_path).check()
    for name in ("bwrap", "unshare", "setpriv"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setattr(postgres, "PROGRAMS", tmp_path)
    with pytest.raises(DriverUnusable, match="install the package postgresql-15"):
        servers(tmp_path).check()
    for name in ("initdb", "postgres"):
        (tmp_path / "15/bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "15/bin" / name).touch(0o755)
    assert servers(tmp_path).versions == [15]

    def missing() -> None:
        raise GroupsMissing("there are none")

    monkeypatch.setattr(control_groups, "delegated", missing)
    with pytest.raises(DriverUnusable, match="cannot bound memory: there are none"):
        servers(tmp_path).check()


def test_a_start_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError) as refused:
        check_drivers(settings(driver="bubblewrap"))
    assert "database_driver bubblewrap needs bwrap" in str(refused.value)
    assert "\n" not in str(refused.value)
