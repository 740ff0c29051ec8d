"""Locks on names (empty files) between processes of a machine; a lock ends with its process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloudcore.files import is_at


@contextmanager
def held(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Hold a lock during the block, and yield True.

    If another process holds the lock, block the thread until it is free; without `wait`, yield
    False instead, and hold nothing. An exclusive holder may delete the file; a waiter then creates
    the file again.
    """
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(opened, kind)
            except BlockingIOError:
                yield False
                return
            if is_at(path, opened):  # no earlier holder has deleted the file
                yield True
                return
        finally:
            os.close(opened)
