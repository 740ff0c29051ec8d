"""The golden tables of commands in `tests/integration/commands`, played against a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from cloudcore.commands.noun_parsers import CommandTable
from registry.cli.commands.completion import nouns_of
from registry.cli.main import make_parser
from registry.cli.server import quota_limits
from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import World, cli_world
from tests.integration.transcripts import Case, Player, cases


class Installs:
    """Opens installs, one for all cases of the same settings, and lets their owners sign in."""

    def __init__(self, resources: ExitStack, folders: pytest.TempPathFactory) -> None:
        self._resources = resources
        self._folders = folders
        self._shared = cache(lambda settings: self._open(self._resources, settings))

    @contextmanager
    def player(self, case: Case, folder: Path) -> Iterator[Player]:
        settings = tuple(each for each in case.settings if each != "each")
        with ExitStack() as own:
            is_own = settings != case.settings
            world, owner = self._open(own, settings) if is_own else self._shared(settings)
            yield Player(world, owner, folder)

    def _open(
        self, resources: ExitStack, settings: Iterable[str]
    ) -> tuple[World, Callable[[], Home]]:
        given = dict(each.split("=", 1) for each in settings)
        if not given:
            given = {"ENTREPOT_FOUNDERS": "owners"}
        world = resources.enter_context(cli_world(self._folders.mktemp("world"), **given))

        @cache
        def owner() -> Home:
            home = Home(self._folders.mktemp("owner"))
            one_time = world.install.one_time_password
            world.sign_in_person(home, ADMIN, one_time, PASSWORD, role="admin")
            return home

        return world, owner


@pytest.fixture(scope="module")
def installs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installs]:
    with ExitStack() as resources, pytest.MonkeyPatch.context() as changed:
        # A command that runs in this process leaves the log as it is.
        changed.setattr(quota_limits, "configure_logging", lambda: None)
        yield Installs(resources, tmp_path_factory)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.title)
def test_commands_print_what_their_table_says(
    installs: Installs, case: Case, tmp_path: Path
) -> None:
    with installs.player(case, tmp_path) as player:
        player.play(case.lines)


def test_nouns_of_described_resources_are_completed() -> None:
    (commands,) = (each for each in make_parser()._actions if isinstance(each, CommandTable))
    assert "queue" in nouns_of(commands)
