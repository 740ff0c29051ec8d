"""The environment of tests that run commands in this process."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

import pytest

from registry.cli import main as command_line

make_parser_once: Final = cache(command_line.make_parser)
"""Makes each parser once: the one of all commands takes a tenth of a second.

``make_parser()`` and ``make_parser(None)`` are two keys of the cache, and two parsers.
"""


@pytest.fixture
def one_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse all command lines with parsers that are made once."""
    monkeypatch.setattr(command_line, "make_parser", make_parser_once)


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch, one_parser: None) -> None:
    """Ignore the settings of this machine, and make parsers once."""
    for name in [each for each in os.environ if each.startswith("ENTREPOT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def uncovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``make coverage`` leave programs alone whose memory or system calls a test counts."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
