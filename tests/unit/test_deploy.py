"""The files of ``deploy/``: what they name is there, and their programs take them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from registry.cli.main import main, make_parser
from registry.settings.reading import from_environment
from registry.settings.settings import Settings
from tests.databases import ROOT

DEPLOY: Final = ROOT / "deploy"
CONTAINERFILE: Final = (DEPLOY / "container" / "Containerfile").read_text()
INSTRUCTIONS: Final = [
    (line.partition(" ")[0], line.partition(" ")[2].strip())
    for line in re.sub(r"\\\n *", "", CONTAINERFILE).splitlines()
    if line and not line.startswith("#")
]
UNITS: Final = sorted((DEPLOY / "systemd").iterdir())


def arguments(instruction: str) -> list[str]:
    """Return the values of all instructions of this name."""
    return [value for name, value in INSTRUCTIONS if name == instruction]


def image_environment() -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", arguments("ENV")[-1]))


def test_the_image_is_made_of_pinned_stages_and_runs_as_no_root() -> None:
    (base,) = arguments("ARG")
    assert re.fullmatch(r"BASE=docker\.io/library/python:\d\.\d+-slim-bookworm", base)
    assert arguments("FROM") == ["$BASE AS build", "$BASE"]
    assert arguments("USER") == ["1000:1000"]
    known = "ARG FROM WORKDIR ENV RUN COPY USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    assert {name for name, _ in INSTRUCTIONS} <= {*re.findall(r"[A-Z]+", known)}
    admitted = re.findall(r"^!(\S+)$", (ROOT / ".containerignore").read_text(), re.MULTILINE)
    copied = {word for value in arguments("COPY") for word in value.split()[:-1] if "=" not in word}
    copied.discard("/opt/entrepot")  # of the first stage
    assert {word.removeprefix("./") for word in copied} == set(admitted)
    assert all((ROOT / name).exists() for name in admitted)
    found = re.search(r"CMD (\[.*\])$", arguments("HEALTHCHECK")[0])
    assert found is not None
    program, *words = json.loads(found[1])
    assert program == "entrepot"
    assert callable(make_parser().parse_args(words).run)


def test_the_command_of_the_image_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (entrypoint,), (command,) = arguments("ENTRYPOINT"), arguments("CMD")
    words = [*json.loads(entrypoint), *json.loads(command)]
    assert words == ["entrepot", "serve"]
    settings = {
        name: value for name, value in image_environment().items() if name.startswith("ENTREPOT_")
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert main(words[1:]) == 2
    assert "set ENTREPOT_PUBLIC_URL" in capsys.readouterr().err
    assert json.loads(arguments("VOLUME")[0]) == [settings["ENTREPOT_DATA"]]


def test_compose_gives_settings_that_there_are() -> None:
    yaml: Any = pytest.importorskip("yaml")  # of schemathesis
    document = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
    entrepot, proxy = document["services"]["entrepot"], document["services"]["caddy"]
    given = {
        name: re.sub(r"\$\{REGISTRY_HOST\S*.*\}", "registry.example.com", value)
        for name, value in entrepot["environment"].items()
    }
    settings = from_environment(image_environment() | given, Settings(data=Path("x")))
    settings.check_has_url()
    assert settings.url == "https://registry.example.com"
    (subnet,) = document["networks"]["inside"]["ipam"]["config"]
    assert [str(each) for each in settings.proxies] == [subnet["subnet"]]
    assert f"--to entrepot:{settings.port}" in proxy["command"]
    assert entrepot["volumes"] == [f"data:{settings.data}"]
    context = (DEPLOY / "container" / entrepot["build"]["context"]).resolve()
    assert (context / entrepot["build"]["dockerfile"]).is_file()


def test_the_units_run_commands_that_there_are() -> None:
    commands = [
        found
        for unit in UNITS
        for found in re.findall(r"^Exec\w+=\S+/entrepot (.+)$", unit.read_text(), re.MULTILINE)
    ]
    assert len(commands) == 3
    for command in commands:
        assert make_parser().parse_args(command.split()).run is not None


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units_and_finds_little_exposure(tmp_path: Path) -> None:
    for unit in UNITS:
        text = re.sub(r"/opt/entrepot/.venv/bin/entrepot", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    copies = [str(tmp_path / unit.name) for unit in UNITS]
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *copies],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    named = [line for line in verified.stderr.splitlines() if "entrepot" in line]
    assert (verified.returncode, named) == (0, [])
    for service in ("entrepot.service", "entrepot-backup.service"):
        judged = subprocess.run(
            [
                *("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager"),
                str(tmp_path / service),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert judged.returncode == 0, judged.stdout[-300:]
