"""Processes that tests interrupt, as Ctrl+C does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Let processes that are started in the block be ended by SIGINT.

    A shell without job control has what it starts in the background ignore SIGINT, and children
    inherit that. Only what is ignored is inherited, so any handler will do.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
