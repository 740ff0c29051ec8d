"""``entrepot clusters psql``: what psql is told, and what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.options import values_of
from cloudcore.databases.commands import COMMANDS, _psql
from cloudcore.errors import InvalidInput
from registry.cli.main import make_parser

_PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" >{told}
roots=$(printf '%s' "$1" | sed "s/.*sslrootcert='\\([^']*\\)'.*/\\1/")
cat "$roots" >>{told}
echo "password $PGPASSWORD roots $roots" >>{told}
"""


class Run:
    def __init__(self, connection: object, **values: object) -> None:
        self.record = {"name": "shop", "status": "active", "connection": connection}
        self.values = values


def test_it_checks_the_server_by_our_roots_and_is_told_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    program = tmp_path / "psql"
    program.write_text(_PROGRAM.format(told=told))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PGPASSWORD", "a secret")
    at = {"host": "192.0.2.1", "port": 20_000, "database": "it's", "username": "admin"}
    run = Run({**at, "ca": "ROOTS\n"}, commands=["SELECT 1"], arguments=["--csv", "-x"])
    assert _psql(cast("Invocation", cast("Any", run)))
    conninfo, command, *more, roots, end = told.read_text().splitlines()
    assert more == ["--csv", "-x"]
    assert conninfo.startswith("host='192.0.2.1' port='20000' dbname='it\\'s' user='admin'")
    assert "sslmode='verify-full'" in conninfo
    assert (command, roots) == ("--command=SELECT 1", "ROOTS")
    assert "password a secret" in end, "by the environment, never as an argument"
    assert not Path(end.rpartition(" ")[2]).exists(), "the file is gone"


def test_what_has_no_connection_yet_says_so() -> None:
    with pytest.raises(InvalidInput, match="shop is active: nothing can be connected to"):
        _psql(cast("Invocation", cast("Any", Run(None))))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("shop", {}),
        ("shop -c X --command Y", {"commands": ["X", "Y"]}),
        ("shop -c -X --", {"commands": ["-X"], "arguments": []}),
        ("shop -- -A --csv -- x", {"arguments": ["-A", "--csv", "--", "x"]}),
        (
            "-c X shop --database d -- -c Z",
            {"commands": ["X"], "database": "d", "arguments": ["-c", "Z"]},
        ),
    ],
)
def test_what_follows_two_dashes_is_psql_s_own(words: str, values: dict[str, Any]) -> None:
    parsed = make_parser().parse_args(["clusters", "psql", *words.split()])
    (act,) = [each for each in COMMANDS[0].commands if each.verb == "psql"]
    assert values_of(parsed, act.options) == values


def test_other_commands_take_nothing_after_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["clusters", "stop", "shop", "--", "x"])
    assert "'x' is too much" in capsys.readouterr().err
