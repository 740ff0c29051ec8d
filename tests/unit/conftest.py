"""What several tests of this folder share."""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from registry.cli import main as command_line

ONCE: Final = cache(command_line.make_parser)


@pytest.fixture
def one_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all command lines with one parser: it takes longer to make than to use."""
    monkeypatch.setattr(command_line, "make_parser", ONCE)
