"""The golden tables of commands in `tests/integration/commands`, played against a registry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from registry.cli.commands.completion import nouns_of
from registry.cli.main import make_parser
from registry.cli.nouns.commands import CommandTable
from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import cli_world
from tests.integration.transcripts import Case, Player, cases


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """Return what plays against an install whose owner signs in when that is asked for first."""
    grants = {"ENTREPOT_FOUNDERS": "owners"}
    with cli_world(tmp_path_factory.mktemp("world"), **grants) as world:

        @cache
        def owner() -> Home:
            home = Home(tmp_path_factory.mktemp("owner"))
            given = world.install.one_time_password
            world.sign_in_person(home, ADMIN, given, PASSWORD, role="admin")
            return home

        yield Player(world, owner, Path())


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.title)
def test_commands_print_what_their_table_says(player: Player, case: Case, tmp_path: Path) -> None:
    Player(player.world, player.owner, tmp_path).play(case.lines)


def test_nouns_of_described_resources_are_completed() -> None:
    (commands,) = (each for each in make_parser()._actions if isinstance(each, CommandTable))
    assert "queue" in nouns_of(commands)
