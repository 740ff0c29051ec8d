"""Note which branches of the sources the tests take, at a cost that CI can pay.

``prepare FOLDER`` compiles the sources with a note at the head of each way out of an ``if``, a loop
and a ``match``: it sets a byte of a file that all processes map into their memory. If the variable
``BRANCH_COVERAGE`` is the folder, the processes of pytest, and those that `tests/loaded.py` forks,
run what was compiled so, and lose nothing when they are killed. What is started as a program notes
nothing. ``report FOLDER`` prints the share of branches taken by room; with a path, those not taken.
"""

from __future__ import annotations

import ast
import builtins
import json
import marshal
import mmap
import os
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import zip_longest
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

FOLDER: Final = "BRANCH_COVERAGE"
"""The variable that names the folder with what was prepared."""
_SOURCES: Final = Path(__file__).resolve().parent.parent / "src"
_PACKAGES: Final = ("cloudcore", "registry")
_REVISIONS: Final = "migrations/versions"
"""Alembic loads these files by itself."""
NOTES: Final = "_branches_taken"
"""The name by which the compiled sources find the notes; among the builtins, so in all modules."""
_Loop = ast.For | ast.AsyncFor | ast.While


class Branch(NamedTuple):
    """A way out of a statement."""

    file: str
    line: int
    way: str
    """Of an ``if`` it is true or false, of a loop entered or ended, of a ``match`` case or none."""


class _Noter(ast.NodeTransformer):
    """Puts a note at the head of each way out of a statement of one file."""

    def __init__(self, file: str, branches: list[Branch]) -> None:
        self._file, self._branches = file, branches

    def _note(self, at: ast.stmt | ast.expr | ast.pattern, way: str) -> ast.stmt:
        place = len(self._branches)
        self._branches.append(Branch(self._file, at.lineno, way))
        note = ast.parse(f"{NOTES}[{place}] = 1").body[0]
        for node in ast.walk(note):
            ast.copy_location(node, at)
        return note

    def visit_If(self, node: ast.If) -> ast.If:
        if not _is_fixed(node.test):
            node.body.insert(0, self._note(node, "true"))
            node.orelse.insert(0, self._note(node, "false"))
        self.generic_visit(node)
        return node

    def _visit_loop(self, node: _Loop) -> ast.stmt:
        if not (isinstance(node, ast.While) and _is_fixed(node.test)):
            node.body.insert(0, self._note(node, "entered"))
            node.orelse.insert(0, self._note(node, "ended"))
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.stmt:
        return self._visit_loop(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.stmt:
        return self._visit_loop(node)

    def visit_While(self, node: ast.While) -> ast.stmt:
        return self._visit_loop(node)

    def visit_Match(self, node: ast.Match) -> ast.Match:
        for case in node.cases:
            case.body.insert(0, self._note(case.pattern, "case"))
        if not _takes_all(node.cases[-1]):
            rest = ast.copy_location(ast.MatchAs(), node.cases[-1].pattern)
            node.cases.append(ast.match_case(rest, body=[self._note(node, "none")]))
        self.generic_visit(node)
        return node


def _is_fixed(test: ast.expr) -> bool:
    """Return True if one way alone exists when the program runs."""
    return isinstance(test, ast.Constant) or (
        isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
    )


def _takes_all(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and not case.pattern.pattern


def with_notes(source: bytes, file: str, branches: list[Branch]) -> ast.Module:
    """Return a source that sets ``NOTES[n]`` as it takes branch n; append its own to `branches`."""
    tree: ast.Module = _Noter(file, branches).visit(ast.parse(source))
    return tree


def prepare(folder: Path) -> None:
    """Compile all sources with notes, and lay out the file of notes."""
    folder.mkdir(parents=True, exist_ok=True)
    branches: list[Branch] = []
    compiled = {}
    for file in sorted(_SOURCES.rglob("*.py")):
        if _REVISIONS not in str(file):
            name = str(file.relative_to(_SOURCES.parent))
            tree = with_notes(file.read_bytes(), name, branches)
            compiled[str(file)] = marshal.dumps(compile(tree, file, "exec", dont_inherit=True))
    (folder / "compiled").write_bytes(marshal.dumps(compiled))
    (folder / "branches").write_text(json.dumps(branches))
    (folder / "notes").write_bytes(bytes(len(branches)))


class _Loader(SourceFileLoader):
    """Loads a module as it was compiled with notes."""

    def __init__(self, name: str, path: str, compiled: bytes) -> None:
        super().__init__(name, path)
        self._compiled = compiled

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = marshal.loads(self._compiled)
        return code


class _Finder(MetaPathFinder):
    """Finds the modules that were compiled with notes."""

    def __init__(self, compiled: dict[str, bytes]) -> None:
        self._compiled = compiled

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin and (compiled := self._compiled.get(spec.origin)):
            spec.loader = _Loader(fullname, spec.origin, compiled)
        return spec


def pytest_load_initial_conftests() -> None:
    """Begin before the first module of the sources is imported, in each process of pytest."""
    note_branches()


def note_branches() -> None:
    """Let this process, and those that it forks, note the branches that they take, if asked to."""
    if FOLDER not in os.environ or hasattr(builtins, NOTES):
        return
    folder = Path(os.environ[FOLDER])
    with (folder / "notes").open("r+b") as file:
        setattr(builtins, NOTES, mmap.mmap(file.fileno(), 0))
    sys.meta_path.insert(0, _Finder(marshal.loads((folder / "compiled").read_bytes())))


def _noted(folder: Path) -> Iterator[tuple[Branch, int]]:
    """Yield all branches, each with 1 if it was taken, else 0."""
    branches = json.loads((folder / "branches").read_text())
    notes = (folder / "notes").read_bytes()
    yield from zip((Branch(*each) for each in branches), notes, strict=True)


def _room(file: str) -> str:
    """Return the package of a file, at most two deep."""
    return "/".join(Path(file).parent.parts[1:3])


def rooms(folder: Path) -> Iterator[str]:
    """Yield lines with the branches taken and all branches of each room, two rooms in a line.

    Raise `AssertionError` if no branch at all was taken: then nothing was noted.
    """
    taken: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for branch, note in _noted(folder):
        for room in (_room(branch.file), "all"):
            taken[room] += note
            every[room] += 1
    assert taken["all"], "the tests ran other sources than were prepared"
    shown = [
        f"{room:28}{taken[room]:6} of {every[room]:6}{100 * taken[room] / every[room]:6.1f} %"
        for room in sorted(every)
    ]
    half = -(-len(shown) // 2)
    for left, right in zip_longest(shown[:half], shown[half:], fillvalue=""):
        yield f"{left}    {right}".rstrip()


def untaken(folder: Path, path: str) -> Iterator[str]:
    """Yield a line for each branch that was not taken in the files below a path."""
    for branch, note in _noted(folder):
        if branch.file.startswith(path) and not note:
            yield f"{branch.file}:{branch.line} {branch.way}"


def main() -> None:
    """Prepare the sources, or report what was noted."""
    parser = ArgumentParser(prog="python -m tests.branch_coverage")
    parser.add_argument("act", choices=("prepare", "report"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("path", nargs="?", help="of a source: its branches that were not taken")
    asked = parser.parse_args()
    if asked.act == "prepare":
        prepare(asked.folder)
        return
    lines = untaken(asked.folder, asked.path) if asked.path else rooms(asked.folder)
    sys.stdout.writelines(f"{each}\n" for each in lines)


if __name__ == "__main__":
    main()
