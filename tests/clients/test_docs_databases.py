"""The commands of ``docs/databases.md`` are run in their order, with servers that really run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.clients.docs_shell import commands_of, shell, write_program
from tests.database_install import database_install
from tests.entrepot import Home
from tests.tools import require_tool

PAGE: Final = "docs/databases.md"

pytestmark = pytest.mark.timeout(300)


def test_the_commands_of_the_page_work(workspace: Path) -> None:
    for name in ("jq", "psql"):
        require_tool(name)
    programs = workspace / "programs"
    write_program(programs, "entrepot", f'exec {sys.executable} -m registry "$@"')
    with database_install() as (install, folder):
        home = Home(folder / "home")
        assert install.sign_in_by_key(home).returncode == 0
        environment = {**home.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        with shell(workspace, environment) as started:
            for command in commands_of(PAGE):
                started.run(command, "of a role elsewhere\n" if "--password" in command else "")
            assert len(started.done) > 15
            # What is deleted on the way ends before the service does.
            started.run("entrepot clusters delete legacy --yes")
            started.run("while entrepot clusters list --quiet | grep .; do sleep 0.2; done")
