"""The pages of commands and settings are what the code says."""

from __future__ import annotations

from tests import commands_page, settings_page


def test_the_page_of_commands_is_what_their_help_says() -> None:
    page = commands_page.page()
    assert commands_page.PAGE.read_text() == page, "run: python -m tests.commands_page"


def test_the_page_of_settings_is_what_their_docstrings_say() -> None:
    page = settings_page.page()
    assert settings_page.PAGE.read_text() == page, "run: python -m tests.settings_page"
