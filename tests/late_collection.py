"""Let each process of pytest-xdist import a file of tests, and make its tests, when it runs them.

Each process would otherwise make all of the tests before the first one runs, which takes half a
minute of a processor, and two thirds of them run in other processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_WITHOUT: Final = re.compile(r"(not \w+)?")
"""Expressions of marks that select all tests, or those without a mark."""


class WholeFile(pytest.Item):
    """All tests of a file. Processes agree on these before any test runs, and share them."""

    running = ""
    """The test that runs: pytest-xdist takes reports only about the item that it has asked for."""

    @property
    def nodeid(self) -> str:
        """Return the name of the test that runs, or else of the file's tests together."""
        return self.running or super().nodeid

    def runtest(self) -> None:
        """Refuse to run as a test: `pytest_runtest_protocol` runs the tests of the file."""
        raise NotImplementedError

    def run_tests(self, nextitem: pytest.Item | None) -> None:
        """Collect the tests of the file, and run those that are selected."""
        directory = self.parent.parent if self.parent else None
        module = pytest.Module.from_parent(directory, path=self.path)
        items = list(self.session.genitems(module))
        self.config.hook.pytest_collection_modifyitems(
            session=self.session, config=self.config, items=items
        )
        for item, following in zip(items, [*items[1:], nextitem], strict=False):
            self.running = item.nodeid
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.shouldfail or self.session.shouldstop:
                break
        self.running = ""
        if not items:  # then no test has torn down what only the file before it used
            self.session._setupstate.teardown_exact(nextitem)


class _FileToCollect(pytest.File):
    def collect(self) -> Iterator[WholeFile]:
        yield WholeFile.from_parent(self, name="*")


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """Put off the import of a file, unless tests are selected by what only the import tells."""
    config = parent.config
    names, marks = config.option.keyword, config.option.markexpr
    is_selective = (
        names or any("::" in each for each in config.args) or config.getoption("lf", default=False)
    )
    # Which tests lack a mark is told by the files that are collected later, one by one.
    if not hasattr(config, "workerinput") or is_selective or not _WITHOUT.fullmatch(marks):
        return None
    made: _FileToCollect = _FileToCollect.from_parent(parent, path=module_path)
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run the tests of a file in place of the one item that stands for them."""
    if not isinstance(item, WholeFile):
        return None
    item.run_tests(nextitem)
    return True
