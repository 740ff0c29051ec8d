"""The environment of tests that run commands in this process."""

from __future__ import annotations

import os
from functools import cache

import pytest

from registry.cli import main as command_line

_parser_of = cache(command_line.make_parser)


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no setting of this machine count, and parse commands by a parser that is made once.

    To make that takes a fifth of a second, most of what such a command takes here.
    """
    monkeypatch.setattr(command_line, "make_parser", _parser_of)
    for name in [each for each in os.environ if each.startswith("ENTREPOT_")]:
        monkeypatch.delenv(name)
