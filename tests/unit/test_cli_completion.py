"""Completion scripts of shells."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from registry.cli.main import main
from tests.tools import require_tool


@cache
def script(shell: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["completion", shell]) == 0
    return printed.getvalue()


@pytest.fixture
def bash_script(tmp_path: Path) -> Path:
    path = tmp_path / "entrepot.bash"
    path.write_text(script("bash"))
    return path


def completed(path: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of some words."""
    typed = ("entrepot", *words)
    asked = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_shtab_entrepot 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = require_tool("bash")
    command = [bash, "--norc", "--noprofile", "-c", asked, "bash", str(path), *typed]
    ended = subprocess.run(
        command, capture_output=True, check=True, text=True, timeout=30, cwd=path.parent
    )
    assert ended.stderr == ""
    return ended.stdout.split()


def offered(path: Path, line: str) -> list[str]:
    """Return what bash offers at the end of a line, where the registry would be asked."""
    asked = (
        'source "$1"; entrepot() { echo "$@" >&2; printf "%s\\n" app:1.0 app:2.0 app; }; '
        'COMP_LINE="$2"; COMP_POINT=${#2}; _entrepot; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = require_tool("bash")
    command = [bash, "--norc", "--noprofile", "-c", asked, "bash", str(path), line]
    ended = subprocess.run(command, capture_output=True, check=True, text=True, timeout=30)
    return ended.stdout.split()


def test_bash_completes_references_as_one_word(bash_script: Path) -> None:
    assert offered(bash_script, "entrepot images show app:") == ["1.0", "2.0"]
    assert offered(bash_script, "entrepot images show app:2") == ["2.0"]
    assert offered(bash_script, "entrepot images show ap") == ["app:1.0", "app:2.0", "app"]
    assert offered(bash_script, "entrepot tags delete app:1.0 --fo") == []
    assert offered(bash_script, "entrepot tags delete app:1.0 --fu") == ["--full-digests"]
    assert offered(bash_script, "entrepot ima") == ["images"]
    assert "--all" in offered(bash_script, "entrepot images list -")


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("tags set app:latest ", "tag"),
        ("tags delete app 1", "tag"),
        ("images delete app ", "tag"),
        ("may ", "principal"),
        ("may ci ", "action"),
        ("may ci registry:Pu", "action"),
        ("may ci PushImage ", "repository"),
        ("policies simulate ", "principal"),
        ("policies attach web --role ", "role"),
        ("policies detach web --service-account c", "service-account"),
        ("login https://localhost --role ", "role"),
        ("roles create web --policy ", "policy"),
        ("roles create web --user ", "person"),
    ],
)
def test_bash_asks_for_what_an_argument_names(bash_script: Path, typed: str, asked: str) -> None:
    line = f"entrepot {typed}"
    bash_script.write_text(bash_script.read_text().replace("2>/dev/null)", ")"))
    source = (
        'source "$1"; entrepot() { echo "$*" >&2; }; COMP_LINE="$2"; COMP_POINT=${#2}; _entrepot'
    )
    bash = require_tool("bash")
    command = [bash, "--norc", "--noprofile", "-c", source, "bash", str(bash_script), line]
    ended = subprocess.run(command, capture_output=True, check=True, text=True, timeout=30)
    word = line.rpartition(" ")[2]
    assert ended.stderr == f"__complete {asked} {word} --line={line}\n"


def test_bash_completes_commands_options_choices_and_files(bash_script: Path) -> None:
    subprocess.run([require_tool("bash"), "-n", bash_script], check=True, timeout=30)
    assert completed(bash_script, "reposi") == ["repositories", "repository-policies"]
    assert completed(bash_script, "images", "re") == ["restore", "referrers"]
    assert completed(bash_script, "lifecycle", "run", "--w") == ["--wait"]
    assert completed(bash_script, "tags", "list", "--output", "j") == ["json", "jsonl"]
    (bash_script.parent / "rules.json").touch()
    assert completed(bash_script, "lifecycle", "set", "app", "ru") == ["rules.json"]


@pytest.mark.parametrize(
    ("shell", "begin"), [("zsh", "#compdef entrepot"), ("fish", "# AUTOMATICALLY GENERATED")]
)
def test_other_shells_have_theirs(shell: str, begin: str) -> None:
    text = script(shell)
    assert text.startswith(begin)
    for command in ("repositories", "images", "tags", "policies", "lifecycle", "events"):
        assert command in text
    asked = "_entrepot_names image" if shell == "zsh" else "(entrepot __complete image"
    assert asked in text


def test_another_shell_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "cmd"])
    assert "invalid choice: 'cmd'" in capsys.readouterr().err
