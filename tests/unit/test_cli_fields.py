"""The page of fields tells what the operations declare."""

from __future__ import annotations

from registry.cli.main import make_parser
from tests.cli_fields import NOUNS, PAGE, page

OF_OPERATORS = {"config", "scrub", "seal"}


def test_the_page_of_fields_is_what_the_operations_declare() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.cli_fields"


def test_the_page_of_fields_has_every_noun_that_prints_records() -> None:
    (commands,) = [each for each in make_parser()._actions if each.choices]
    assert isinstance(commands.choices, dict)
    nouns = {name for name, parser in commands.choices.items() if parser.groups}
    # The pages catalog.md, deploy.md, scrub.md and seal.md describe these.
    assert set(NOUNS) >= nouns - {"catalog"} - OF_OPERATORS
