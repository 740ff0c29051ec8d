"""The file operations a blob store asks of the system: watched, failed, or died at."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

WATCHED = ("open", "pwrite", "ftruncate", "fsync", "rename", "unlink")
"""Every call of the store that changes the disk, or opens; the strace test proves it is all."""


class Operation(NamedTuple):
    """One call that the store is about to make."""

    name: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    call: Callable[[], Any]


def changes(operation: Operation) -> bool:
    """Return True if a call changes what is on the disk."""
    if operation.name == "open":
        return bool(operation.arguments[1] & os.O_CREAT)
    return operation.name != "flock"


Watcher = Callable[[Operation], Any]
"""Makes the call, or something worse, and returns what the store shall see."""


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Let `watcher` stand between the store and the system; ``fcntl.flock`` is watched too."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (*((os, name) for name in WATCHED), (fcntl, "flock")):
            patch.setattr(module, name, _between(name, getattr(module, name), watcher))
        yield


def _between(name: str, original: Callable[..., Any], watcher: Watcher) -> Callable[..., Any]:
    def stand_in(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - any system call
        call = lambda: original(*arguments, **keywords)  # noqa: E731
        return watcher(Operation(name, arguments, keywords, call))

    return stand_in
