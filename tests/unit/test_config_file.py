"""Settings from a file: strict names, strict types, below the environment and the command line."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Final

import pytest

from registry.cli import main as command_line
from registry.cli.main import main
from registry.cli.server.options import settings_of
from registry.settings.reading import NAMES, from_environment, read_config, with_values
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError
from tests.databases import ROOT

EXAMPLE: Final = ROOT / "deploy" / "entrepot.toml"


pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "entrepot.toml"


def settings(*arguments: str) -> Settings:
    return settings_of(command_line.make_parser().parse_args(arguments))


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('region = "file"\nport = 1\nhost = "::1"\ngc_grace_seconds = 7\n')
    monkeypatch.setenv("ENTREPOT_PORT", "2")
    monkeypatch.setenv("ENTREPOT_HOST", "127.0.0.2")
    found = settings("serve", "--config", str(config), "--host", "127.0.0.3")
    assert (found.region, found.port, found.host) == ("file", 2, "127.0.0.3")
    assert found.delays.gc_grace_seconds == 7
    assert found.data == Path("entrepot-data")
    monkeypatch.setenv("ENTREPOT_CONFIG", str(config))
    for command in (["fsck"], ["backup", "there"], ["gc", "orphans"]):
        assert settings(*command).region == "file"


def test_a_list_is_a_list_or_a_text(config: Path) -> None:
    config.write_text('allowed_hosts = ["one", "two:80"]\ntrusted_proxies = "10.0.0.0/8, ::1"\n')
    found = settings("serve", "--config", str(config))
    assert found.hosts == ("one", "two:80")
    assert [str(each) for each in found.proxies] == ["10.0.0.0/8", "::1/128"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "prot is not a setting; did you mean port?"),
        ("ENTREPOT_PORT = 1", "ENTREPOT_PORT is not a setting"),
        ('publik_url = "x"', "publik_url is not a setting; did you mean public_url?"),
        ("limits = 1", "limits is not a setting"),
        ("[serve]\nport = 1", "there are no tables; take the line [serve] out"),
        ('port = "1"', "port must be a whole number, not '1'"),
        ("port = true", "port must be a whole number, not True"),
        ("port = -1", "port must be a whole number, not -1"),
        ("port = 1.0", "port must be a whole number, not 1.0"),
        ("host = 1", "host must be a string, not 1"),
        ('host = ["a"]', "host must be a string, not ['a']"),
        ("cors_origins = [1]", "cors_origins must be a list of strings, not [1]"),
        ('cors_origins = ["a,b"]', "cors_origins must be a list of strings, not ['a,b']"),
        ("port = ", "Invalid value (at end of document)"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(
    text: str, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(f"{config}: {words}")):
        read_config(config)


def test_a_file_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--config", str(tmp_path / "absent.toml")]) == 2
    assert "absent.toml: No such file or directory" in capsys.readouterr().err


def test_an_unknown_variable_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="ENTREPOT_PROT is not a setting; did you mean"):
        from_environment({"ENTREPOT_PROT": "1"}, Settings(data=Path()))


@pytest.mark.parametrize(
    ("name", "url", "shown"),
    [
        ("SMTP_URL", "smtp://me:s3cret@mail:587", "smtp://me:***@mail:587"),
        ("SMTP_URL", "smtps://me:s%40s3cret@mail", "smtps://me:***@mail"),
        ("SMTP_URL", "smtp://mail:25", "smtp://mail:25"),
        ("DATABASE_URL", "postgresql://me:a#b?s3cret@db/name", "postgresql://me:***@db/name"),
        ("DATABASE_URL", "postgresql://me@db:5432/name", "postgresql://me@db:5432/name"),
        ("DATABASE_URL", "sqlite:////srv/a:b@c/m.db", "sqlite:////srv/a:b@c/m.db"),
    ],
)
def test_config_show_prints_no_password(
    name: str,
    url: str,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The unit of systemd runs it at each start, so it is in the journal."""
    monkeypatch.setenv(f"ENTREPOT_{name}", url)
    monkeypatch.setenv("ENTREPOT_SMTP_FROM", "news@example.com")
    assert main(["config", "show"]) == 0
    printed = capsys.readouterr().out
    assert f'{name.lower()} = "{shown}"' in printed
    assert "s3cret" not in printed


def test_config_show_prints_a_file_that_says_where_each_value_comes_from(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('region = "eu-1"\nport = 1\nallowed_hosts = ["one:80", "two"]\n')
    monkeypatch.setenv("ENTREPOT_PORT", "2")
    url = "postgresql://me:s3cret@db/name?sslmode=require&password=s3cret2"
    monkeypatch.setenv("ENTREPOT_DATABASE_URL", url)
    words = ["config", "show", "--config", str(config), "--workers", "3"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "s3cret" not in shown
    assert 'database_url = "postgresql://me:***@db/name?sslmode=require&password=***"' in shown
    assert shown.startswith("# clients reach it at http://one:80\n")
    for name, value, origin in (
        ("region", '"eu-1"', str(config)),
        ("port", "2", "ENTREPOT_PORT"),
        ("workers", "3", "command line"),
        ("host", '"127.0.0.1"', "default"),
        ("allowed_hosts", '["one:80","two"]', str(config)),
    ):
        assert re.search(rf"^{name} = {re.escape(value)} +# {re.escape(origin)}$", shown, re.M), (
            name
        )
    before = settings(*words)
    config.write_text(shown.replace(":***@", ":s3cret@").replace("=***", "=s3cret2"))
    monkeypatch.delenv("ENTREPOT_PORT")
    monkeypatch.delenv("ENTREPOT_DATABASE_URL")
    assert settings("config", "show", "--config", str(config)) == before


def test_config_show_refuses_what_serve_refuses(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings are shown all the same, and every reason is told."""
    catalog = tmp_path / "catalog.json"
    catalog.write_text('{"regions": [], "prices": []}')
    for text, *reasons in (
        ('host = "0.0.0.0"', "host: 0.0.0.0 is every address", "set ENTREPOT_PUBLIC_URL"),
        ('host = "256.1.1.1"', "host: this machine cannot listen on '256.1.1.1': "),
        ('host = "192.0.2.1"', "host: this machine cannot listen on '192.0.2.1': "),
        ('metrics = "192.0.2.1:9100"', "metrics: this machine cannot listen on '192.0.2.1': "),
        (f'catalog_file = "{tmp_path}/absent"', f"catalog_file: the catalog {tmp_path}/absent: "),
        (f'catalog_file = "{catalog}"', f"catalog_file: the catalog {catalog}: "),
        (
            f'host = "a b"\ncatalog_file = "{catalog}"',
            "host: this machine cannot listen on 'a b': ",
            f"; catalog_file: the catalog {catalog}: ",
        ),
    ):
        config.write_text(f"{text}\n")
        assert main(["config", "show", "--config", str(config)]) == 2, text
        told = capsys.readouterr()
        assert told.err.startswith("entrepot: serve would refuse these settings: ")
        assert all(reason in told.err for reason in reasons), told.err
        assert f"# {config}\n" in told.out
    place = ("127.0.0.1", 0)
    with socket.create_server(place) as server, socket.create_server(place) as metrics:
        ports = [each.getsockname()[1] for each in (server, metrics)]  # of one that runs already
        config.write_text('port = {}\nmetrics = "127.0.0.1:{}"\n'.format(*ports))
        assert main(["config", "show", "--config", str(config)]) == 0


def test_an_address_of_metrics_may_be_one_of_ipv6() -> None:
    assert Settings(Path(), metrics="[::1]:9100").metrics_address == ("::1", 9100)
    assert Settings(Path(), metrics=":9100").metrics_address == ("", 9100)  # every address
    assert Settings(Path(), metrics="localhost:0").metrics_address == ("localhost", 0)
    assert Settings(Path()).metrics_address is None


def test_the_example_has_every_setting_once_with_its_default(config: Path) -> None:
    text = EXAMPLE.read_text()
    named = re.findall(r"^#?([a-z0-9_]+) = ", text, re.MULTILINE)
    assert sorted(named) == sorted(NAMES)
    given = read_config(EXAMPLE)
    assert set(given) == {*("public_url", "trusted_proxies", "data", "request_seconds", "metrics")}
    config.write_text(re.sub(r"^#([a-z0-9_]+ = )", r"\1", text, flags=re.MULTILINE))
    everything = read_config(config)
    plain = Settings(data=Path("x"))
    assert with_values(plain, everything) == with_values(plain, given)
    for line in text.splitlines():
        assert re.fullmatch(r"|# .*|#|#?[a-z0-9_]+ = .*", line), line
