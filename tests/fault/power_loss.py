"""A model of a disk that forgets what was not flushed, after ALICE (Pillai, OSDI 2014).

What POSIX promises and no more: data of a file is safe once that file is flushed, an entry once
its folder is. Until then each write may be lost or kept by itself, while entries are lost from
the newest back, as journals do. Between two flushes any such state may be found after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import combinations
from pathlib import Path

from tests.fault.operations import Operation
from tests.fault.uploads import Acknowledged

Names = Mapping[str, int]
"""Paths below the store's root, and the inode each leads to."""

State = tuple[Names, Mapping[int, bytes]]
"""What the disk may hold: entries, and the bytes of each inode."""

Change = tuple[int, bytes | None]
"""Bytes written at an offset; None cuts the file there."""


class Disk:
    """Watches one store's operations (`watched`) and tells what a power loss may leave.

    `history` holds for each moment the acknowledgements so far and every legal state.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._entries: list[dict[str, int]] = [{}]  # the first is safe, the last is current
        self._touched: list[set[str]] = [set()]
        self._safe: dict[int, bytes] = {}
        self._pending: dict[int, list[Change]] = {}
        self.rows = Acknowledged()
        self.history: list[tuple[Acknowledged, list[State]]] = []

    def __call__(self, operation: Operation) -> object:
        """Make the call, note what it did to the disk, and take down the legal states."""
        note = getattr(self, f"_{operation.name}", None)
        before = None if note is None else self._path(operation)
        answer = operation.call()
        if note is not None:
            note(operation, before, answer)
            self.take_down()
        return answer

    def acknowledge(self, upload_id: str, offset: int, digests: Mapping[str, str]) -> None:
        """Take an acknowledgement; from here on the bytes must survive."""
        self.rows(upload_id, offset, digests)
        self.take_down()

    def take_down(self) -> None:
        """Add the present moment to `history`."""
        self.history.append((deepcopy(self.rows), list(self._states())))

    def _states(self) -> Iterator[State]:
        for names in self._entries:
            inodes = sorted(set(names.values()))
            assert len(inodes) <= 1, "one upload, one file"
            if not inodes:
                yield dict(names), {}
            for inode in inodes:
                for content in self._contents(inode):
                    yield dict(names), {inode: content}

    def _contents(self, inode: int) -> set[bytes]:
        """Return the file with every subset of its pending changes."""
        pending = self._pending.get(inode, [])
        assert len(pending) <= 12, "too many subsets to try"
        subsets = (
            kept for count in range(len(pending) + 1) for kept in combinations(pending, count)
        )
        return {apply(self._safe.get(inode, b""), kept) for kept in subsets}

    def _path(self, operation: Operation) -> str:
        """Return the path an operation is about, below the root."""
        place, keywords = operation.arguments[0], operation.keywords
        if isinstance(place, int):
            return self._below(place)
        folder = keywords["src_dir_fd" if operation.name == "rename" else "dir_fd"]
        return self._below(folder, place)

    def _below(self, descriptor: int, name: str = "") -> str:
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        return str((folder / name).relative_to(self._root))

    def _change_entries(self, entries: dict[str, int], *folders: str) -> None:
        self._entries.append(entries)
        self._touched.append({str(Path(each).parent) for each in folders})

    def _open(self, operation: Operation, path: str, descriptor: int) -> None:
        if operation.arguments[1] & os.O_CREAT:
            inode = os.fstat(descriptor).st_ino
            self._change_entries({**self._entries[-1], path: inode}, path)

    def _rename(self, operation: Operation, source: str, _: object) -> None:
        target = self._below(operation.keywords["dst_dir_fd"], operation.arguments[1])
        entries = dict(self._entries[-1])
        entries[target] = entries.pop(source)
        self._change_entries(entries, source, target)

    def _unlink(self, _: Operation, path: str, _answer: object) -> None:
        entries = dict(self._entries[-1])
        del entries[path]
        self._change_entries(entries, path)

    def _pwrite(self, operation: Operation, path: str, count: int) -> None:
        view, offset = operation.arguments[1:]
        self._change(path, (offset, bytes(view[:count])))

    def _ftruncate(self, operation: Operation, path: str, _: object) -> None:
        self._change(path, (operation.arguments[1], None))

    def _change(self, path: str, change: Change) -> None:
        self._pending.setdefault(self._entries[-1][path], []).append(change)

    def _fsync(self, operation: Operation, path: str, _: object) -> None:
        inode = self._entries[-1].get(path)
        if inode is not None:
            self._safe[inode] = apply(self._safe.get(inode, b""), self._pending.pop(inode, []))
            return
        for number in range(len(self._touched) - 1, 0, -1):
            if path in self._touched[number]:
                self._entries = self._entries[number:]
                self._touched = self._touched[number:]
                return


def apply(content: bytes, changes: list[Change] | tuple[Change, ...]) -> bytes:
    """Return `content` after `changes`; what was never written in between reads as zeros."""
    data = bytearray(content)
    for offset, written in changes:
        if written is None:
            data[offset:] = bytes(max(0, offset - len(data)))
        else:
            data += bytes(max(0, offset - len(data)))
            data[offset : offset + len(written)] = written
    return bytes(data)


def materialise(state: State, root: Path) -> None:
    """Make the files of a state below `root`, whose folders exist."""
    names, contents = state
    for path, inode in names.items():
        (root / path).write_bytes(contents[inode])
