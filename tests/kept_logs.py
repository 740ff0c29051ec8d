"""Where logs go, kept as pytest has it: a command that a test runs in this process changes it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def kept_logs() -> Iterator[None]:
    """Undo at the end of the block what `configure_logging` did in it.

    Else tests after it would find more records in `caplog`, and the complaints of a handler whose
    stream is closed in `capsys`.
    """
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        if root.level != level:  # to set it clears what each logger has cached
            root.setLevel(level)
        root.handlers[:] = handlers


@pytest.fixture(autouse=True)
def keep_logs() -> Iterator[None]:
    """Let no test change where the logs of others go."""
    with kept_logs():
        yield
