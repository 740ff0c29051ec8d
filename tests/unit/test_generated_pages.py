"""The pages of commands, their fields and settings are what the code says."""

from __future__ import annotations

from registry.cli.main import make_parser
from tests import cli_fields, commands_page, settings_page

OF_OPERATORS = {"config", "scrub", "seal"}


def test_the_page_of_commands_is_what_their_help_says() -> None:
    page = commands_page.page()
    assert commands_page.PAGE.read_text() == page, "run: python -m tests.commands_page"


def test_the_page_of_settings_is_what_their_docstrings_say() -> None:
    page = settings_page.page()
    assert settings_page.PAGE.read_text() == page, "run: python -m tests.settings_page"


def test_the_page_of_fields_is_what_the_operations_declare() -> None:
    assert cli_fields.PAGE.read_text() == cli_fields.page(), "run: python -m tests.cli_fields"


def test_the_page_of_fields_has_every_noun_that_prints_records() -> None:
    (commands,) = [each for each in make_parser()._actions if each.choices]
    assert isinstance(commands.choices, dict)
    nouns = {name for name, parser in commands.choices.items() if parser.groups}
    # The pages catalog.md, deploy.md, scrub.md and seal.md describe these.
    assert set(cli_fields.NOUNS) >= nouns - {"catalog"} - OF_OPERATORS
